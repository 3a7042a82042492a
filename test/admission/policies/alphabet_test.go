package policies

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestAlphabet verifies for each character that the grammar has the same blanks, control characters and
// characters around a value as the patterns.
func TestAlphabet(t *testing.T) {
	isControl, isSpace, isBlank := regexp.MustCompile(control), regexp.MustCompile(`^`+space+`$`), regexp.MustCompile(blank)
	for r := range rune(unicode.MaxRune + 1) {
		if r >= 0x3100 && r%251 > 0 || !utf8.ValidRune(r) {
			continue // apart from the blanks of all scripts, some of each block
		}
		text := string(r)
		if got, want := isControl.MatchString(text), unicode.IsControl(r) && !strings.Contains("\t\n\r", text); got != want {
			t.Errorf("%U: control %t, want %t", r, got, want)
		}
		if got, want := isSpace.MatchString(text), strings.TrimSpace(text) == ""; got != want {
			t.Errorf("%U: space %t, want %t", r, got, want)
		}
		errs := annotation.Parse(map[string]string{"limits." + annotation.Domain + "/containers": "/a" + text + "wbps=1"}).Each().Errors()
		if got, want := isBlank.MatchString(text), len(errs) == 0; got != want {
			t.Errorf("%U: blank %t, want %t", r, got, want)
		}
	}
}

// TestLabel verifies that each text of up to four of these characters matches if the grammar takes it for a
// label, and so do texts of the lengths about the bound.
func TestLabel(t *testing.T) {
	pattern := regexp.MustCompile(`^` + label + `$`)
	texts := []string{""}
	for from := 0; len(texts[from]) < 4; from++ {
		for _, c := range []string{"a", "z", "0", "9", "-", "A", ".", "_", "\n"} {
			texts = append(texts, texts[from]+c)
		}
	}
	for n := 61; n < 66; n++ {
		texts = append(texts, strings.Repeat("a", n), strings.Repeat("-", n), strings.Repeat("a", n)+"-", "0"+strings.Repeat("-", n)+"0")
	}
	for _, text := range texts {
		if got, want := pattern.MatchString(text), annotation.IsLabel(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
	if len(texts) < 5000 {
		t.Errorf("only %d texts", len(texts))
	}
}

// TestMost verifies that the largest amounts are valid, and larger ones are not.
func TestMost(t *testing.T) {
	for k, text := range map[blkio.Key]string{blkio.Rbps: mostBytes(), blkio.Wbps: mostBytes(), blkio.Riops: mostOperations(), blkio.Wiops: mostOperations()} {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, p := annotation.ParseAmount(k, text); p != nil {
			t.Errorf("%s=%s: %v", k, text, p)
		}
		if _, p := annotation.ParseAmount(k, strconv.FormatUint(n+1, 10)); p == nil {
			t.Errorf("%s=%d is valid", k, n+1)
		}
	}
}

// TestRatesOfEntry covers the rates of an entry, without those that are max, and whether a key is
// repeated.
func TestRatesOfEntry(t *testing.T) {
	all, bytes, operations, twice := regexp.MustCompile(rates(every)), regexp.MustCompile(rates(isBytes)), regexp.MustCompile(rates(isOperations)), regexp.MustCompile(repeated())
	for _, tt := range []struct {
		limits            string
		bytes, operations []string
		repeated          bool
	}{
		{" wbps=1Mi\triops=+2.5k ", []string{"wbps=1Mi"}, []string{"riops=+2.5k"}, false},
		{" rbps=max wiops=max", nil, nil, false},
		{" rbps=.5Ki wbps=1e+3 riops=7 wiops=8", []string{"rbps=.5Ki", "wbps=1e+3"}, []string{"riops=7", "wiops=8"}, false},
		{" rbps=1 wbps=2 rbps=max", []string{"rbps=1", "wbps=2"}, nil, true},
		{" wiops=1\rwiops=1", nil, []string{"wiops=1", "wiops=1"}, true},
		{" riops=1 wiops=1", nil, []string{"riops=1", "wiops=1"}, false},
	} {
		if b, o := bytes.FindAllString(tt.limits, -1), operations.FindAllString(tt.limits, -1); !slices.Equal(b, tt.bytes) || !slices.Equal(o, tt.operations) || len(all.FindAllString(tt.limits, -1)) != len(b)+len(o) {
			t.Errorf("%q: %q, %q", tt.limits, b, o)
		}
		if twice.MatchString(tt.limits) != tt.repeated {
			t.Errorf("%q is repeated: %t", tt.limits, !tt.repeated)
		}
	}
}

// FuzzEntries verifies that each entry of a valid annotation matches, so the API server rejects none.
func FuzzEntries(f *testing.F) {
	for _, value := range []string{"* wbps=20Mi wbps.burst=.1e+9/60s riops=9 riops.burst=2k/1h; \"/a b\\\"\" riops=2k;\nrootfs wiops=max", "# a\n/..a//b wbps=+1.5e3\r\n@v rbps=.5k", "\"/;\n\" wbps=1", "/a 5", "500", "\u00a05", "/data 010; * 1", "bronze"} {
		f.Add(value)
	}
	split, limit, share, unclean := regexp.MustCompile(tokens), regexp.MustCompile(limitsEntry()), regexp.MustCompile(weightEntry()), regexp.MustCompile(root+"|"+parent+"|"+control)
	all, fraction, class := regexp.MustCompile(weightOfAll()), regexp.MustCompile(fractions()), regexp.MustCompile(values()["Class"].(string))
	f.Fuzz(func(t *testing.T, value string) {
		if !utf8.ValidString(value) {
			return // the API server has no such text
		}
		for kind, pattern := range map[string]*regexp.Regexp{"limits": limit, "weight": share, "class": nil} {
			q := annotation.Parse(map[string]string{kind + "." + annotation.Domain + "/containers": value}).Each()
			if len(q.Errors()) > 0 {
				continue
			}
			whole := map[string]bool{"class": class.MatchString(value), "weight": all.MatchString(value)}
			if kind == "class" || kind == "weight" && q.Weights.Entries[0].Number == 0 {
				if !whole[kind] {
					t.Errorf("%s %q does not match", kind, value)
				}
				continue
			}
			for _, entry := range split.FindAllString("\n"+value, -1) {
				if !strings.HasPrefix(entry, "\n") && (!pattern.MatchString(entry) || unclean.MatchString(entry) || kind == "limits" && fraction.MatchString(regexp.MustCompile(limits()).FindString(entry))) {
					t.Errorf("%s %q does not match", kind, entry)
				}
			}
		}
	})
}

// FuzzPluginList verifies that the names that the policies find in a list are those that YAML has in it. The
// runtime rejects the pods with other lists: it cannot parse them, or no plugin has a name with a blank.
func FuzzPluginList(f *testing.F) {
	for _, text := range []string{"[a, b.c-d_1]", "- a\n- \"b\"\n", "\n - a\n - b ", `["a",'b']`, "[a] # b", "- a # b", "[&x a]", "[a,\n b]", "- a\n  - b", "[a]\f", "- - a", "[null, true, 1.0]"} {
		f.Add(text)
	}
	list, name := regexp.MustCompile(pluginList()), regexp.MustCompile(pluginName)
	f.Fuzz(func(t *testing.T, text string) {
		var doc yaml.Node
		if !list.MatchString(text) || yaml.Unmarshal([]byte(text), &doc) != nil {
			return
		}
		var names []string
		for _, n := range doc.Content {
			for _, item := range n.Content {
				if strings.Contains(item.Value, " ") {
					return
				}
				names = append(names, item.Value)
			}
		}
		if found := name.FindAllString(text, -1); !slices.Equal(found, names) {
			t.Errorf("%q: %q, in YAML %q", text, found, names)
		}
	})
}
