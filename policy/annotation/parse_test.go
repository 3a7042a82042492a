package annotation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestEntries covers valid entries and their meaning.
func TestEntries(t *testing.T) {
	path := func(p string) Target { return Target{Kind: TargetPath, Path: p} }
	star, rootfs := Target{Kind: TargetStar}, Target{Kind: TargetRootfs}
	entry := func(number int, target Target, limits blkio.Limits) Entry {
		return Entry{Number: number, Target: target, Limits: limits}
	}
	mi := blkio.Amount(1 << 20)
	for name, tt := range map[string]struct {
		value string
		want  []Entry
	}{
		"one":      {"/data wbps=1Mi", []Entry{entry(1, path("/data"), blkio.Limits{blkio.Wbps: mi})}},
		"all keys": {"/d rbps=1 wbps=2 riops=3 wiops=4", []Entry{entry(1, path("/d"), blkio.Limits{1, 2, 3, 4})}},
		"both directions": {"/d bps=2Mi iops=9; * bps=max wiops=5", []Entry{
			{Number: 1, Target: path("/d"), Limits: blkio.Limits{2 * mi, 2 * mi, 9, 9}, paired: [blkio.NumLimits]bool{true, true, true, true}},
			{Number: 2, Target: star, Limits: blkio.Limits{blkio.Rbps: blkio.Max, blkio.Wbps: blkio.Max, blkio.Wiops: 5}, paired: [blkio.NumLimits]bool{blkio.Rbps: true, blkio.Wbps: true}},
		}},
		"max":                 {"* wbps=max", []Entry{entry(1, star, blkio.Limits{blkio.Wbps: blkio.Max})}},
		"a newline":           {"rootfs wbps=1Mi\n/d rbps=1Mi", []Entry{entry(1, rootfs, blkio.Limits{blkio.Wbps: mi}), entry(2, path("/d"), blkio.Limits{blkio.Rbps: mi})}},
		"a semicolon":         {"rootfs wbps=1Mi;/d rbps=1Mi;", []Entry{entry(1, rootfs, blkio.Limits{blkio.Wbps: mi}), entry(2, path("/d"), blkio.Limits{blkio.Rbps: mi})}},
		"empty entries":       {";;\n ;* wbps=1Mi;\t;", []Entry{entry(1, star, blkio.Limits{blkio.Wbps: mi})}},
		"Windows lines":       {"* wbps=1Mi\r\n/d rbps=1Mi\r\n", []Entry{entry(1, star, blkio.Limits{blkio.Wbps: mi}), entry(2, path("/d"), blkio.Limits{blkio.Rbps: mi})}},
		"rootfs and all":      {"rootfs wbps=1Mi; * wbps=1Mi", []Entry{entry(1, rootfs, blkio.Limits{blkio.Wbps: mi}), entry(2, star, blkio.Limits{blkio.Wbps: mi})}},
		"carriage returns":    {"/d\rwbps=1Mi\r", []Entry{entry(1, path("/d"), blkio.Limits{blkio.Wbps: mi})}},
		"tabs":                {"\t/d\twbps=1Mi\t", []Entry{entry(1, path("/d"), blkio.Limits{blkio.Wbps: mi})}},
		"comments":            {"# the database; all of it\n/d wbps=1Mi\n  # end", []Entry{entry(1, path("/d"), blkio.Limits{blkio.Wbps: mi})}},
		"a number sign":       {"/d#1 wbps=1Mi", []Entry{entry(1, path("/d#1"), blkio.Limits{blkio.Wbps: mi})}},
		"slashes":             {"//a///b/./c/ wbps=1Mi", []Entry{entry(1, path("/a/b/c"), blkio.Limits{blkio.Wbps: mi})}},
		"dots in names":       {"/..a/b.. wbps=1Mi", []Entry{entry(1, path("/..a/b.."), blkio.Limits{blkio.Wbps: mi})}},
		"a quoted path":       {`"/a b;c" wbps=1Mi`, []Entry{entry(1, path("/a b;c"), blkio.Limits{blkio.Wbps: mi})}},
		"escapes":             {`"/a\"b\\c" wbps=1Mi`, []Entry{entry(1, path(`/a"b\c`), blkio.Limits{blkio.Wbps: mi})}},
		"quotes elsewhere":    {`/a"b wbps=1Mi`, []Entry{entry(1, path(`/a"b`), blkio.Limits{blkio.Wbps: mi})}},
		"other letters":       {"/日本/ü wbps=1Mi", []Entry{entry(1, path("/日本/ü"), blkio.Limits{blkio.Wbps: mi})}},
		"a volume":            {"@data-1 wbps=1Mi", []Entry{entry(1, Target{Kind: TargetVolume, Volume: "data-1"}, blkio.Limits{blkio.Wbps: mi})}},
		"a long volume":       {"@" + strings.Repeat("a", 63) + " wbps=1Mi", []Entry{entry(1, Target{Kind: TargetVolume, Volume: strings.Repeat("a", 63)}, blkio.Limits{blkio.Wbps: mi})}},
		"a path, not rootfs":  {"/rootfs wbps=1Mi", []Entry{entry(1, path("/rootfs"), blkio.Limits{blkio.Wbps: mi})}},
		"a wrong one between": {"/a wbps=1Mi; /b; /c wbps=1Mi", []Entry{entry(1, path("/a"), blkio.Limits{blkio.Wbps: mi}), entry(3, path("/c"), blkio.Limits{blkio.Wbps: mi})}},
	} {
		l := parseLimits(keyDB, tt.value)
		for i := range l.Entries {
			l.Entries[i].text, l.Entries[i].Target.Text = "", ""
		}
		if diff := cmp.Diff(tt.want, l.Entries, cmp.AllowUnexported(Entry{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if wrong := strings.Contains(name, "wrong"); wrong != (len(l.errors) > 0) {
			t.Errorf("%s: %v", name, l.errors)
		}
	}
}

// TestText verifies that an entry and its target keep the user's text, for messages.
func TestText(t *testing.T) {
	l := parseLimits(keyDB, "  \"/a b/\"   wbps=1Mi ;@v  wbps=2Mi")
	if len(l.Entries) != 2 || len(l.errors) > 0 {
		t.Fatal(l.Entries, l.errors)
	}
	if e := l.Entries[0]; e.text != `"/a b/"   wbps=1Mi` || e.Target.Text != `"/a b/"` {
		t.Errorf("%q, %q", e.text, e.Target.Text)
	}
	if e := l.Entries[1]; e.text != "@v  wbps=2Mi" || e.Target.Text != "@v" {
		t.Errorf("%q, %q", e.text, e.Target.Text)
	}
}

// TestSplitEntries verifies that entries that are joined again are split to the same.
func TestSplitEntries(t *testing.T) {
	for value, want := range map[string][]string{
		"":          nil,
		" ; \n;":    nil,
		"a;b":       {"a", "b"},
		"a\nb":      {"a", "b"},
		" a ; b ":   {"a", "b"},
		"#a\nb":     {"b"},
		"a;#b\nc":   {"a", "#b", "c"}, // a comment begins its line
		`"a;b" c;d`: {`"a;b" c`, "d"},
		"\"a\nb":    {`"a`, "b"}, // a quote ends with its line
		`"a\";b" c`: {`"a\";b" c`},
		`"a;b`:      {`"a;b`},
	} {
		got := slices.Collect(splitEntries(value))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", value, diff)
		}
		if again := slices.Collect(splitEntries(strings.Join(got, "\n"))); !slices.Equal(again, got) && !strings.Contains(value, ";#") {
			t.Errorf("%q: %q, then %q", value, got, again)
		}
	}
}

// TestIsLabel verifies that the rule is apimachinery's.
func TestIsLabel(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "0": true, "a-b": true, "a--b": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a_b": false, "ü": false, "a\n": false, strings.Repeat("a", 64): false,
	} {
		if got := IsLabel(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}
