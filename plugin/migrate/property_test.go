package migrate

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestRandomClasses verifies that of each parameter the policy has the lowest value of all elements with
// devices, and not less than the floor. The weight is the last one without devices or, if there is none, the
// lowest one. Each value that is not in the policy is named by a difference.
func TestRandomClasses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := [blkio.NumLimits]string{blkio.Rbps: "ThrottleReadBps", blkio.Wbps: "ThrottleWriteBps", blkio.Riops: "ThrottleReadIOPS", blkio.Wiops: "ThrottleWriteIOPS"}
	values := [blkio.NumLimits][]blkio.Amount{blkio.Rbps: {0, 1, 65535, 65536, 1 << 20, 5e6}, blkio.Wbps: {0, 65537, 1 << 40, 1<<63 - 2}, blkio.Riops: {1, 7, 8, 9, 2000}, blkio.Wiops: {0, 8, 4294967294}}
	for range 300 {
		file, want, all, lowest := "Classes:\n  a:\n", blkio.Limits{}, 0, 0
		var given [blkio.NumLimits][]blkio.Amount // with devices
		for range 1 + random.IntN(4) {
			parts, hasDevices := []string{}, random.IntN(3) > 0
			if hasDevices {
				parts = append(parts, fmt.Sprintf("Devices: [/dev/d%d]", random.IntN(3)))
			}
			for k, name := range names {
				if random.IntN(2) == 0 {
					continue
				}
				amount := values[k][random.IntN(len(values[k]))]
				parts = append(parts, fmt.Sprintf("%s: %d", name, uint64(amount)))
				if !hasDevices {
					continue
				}
				given[k] = append(given[k], amount)
				if amount > 0 && (want[k] == blkio.Unset || amount < want[k]) {
					want[k] = amount
				}
			}
			if weight := []int{0, 10, 100, 500, 1000}[random.IntN(5)]; weight > 0 {
				parts = append(parts, fmt.Sprint("Weight: ", weight))
				if !hasDevices {
					all = weight
				} else if lowest == 0 || weight < lowest {
					lowest = weight
				}
			}
			file += "  - {" + strings.Join(parts, ", ") + "}\n"
		}
		if all == 0 {
			all = lowest
		}
		differences := checkClass(t, file, want, all)
		for k, name := range names {
			for _, amount := range given[k] {
				if text := fmt.Sprintf(": %s %d ", name, uint64(amount)); amount != want[k] && !strings.Contains(differences, text) {
					t.Errorf("%sno difference about%s in\n%s", file, text, differences)
				}
			}
		}
	}
}

// checkClass compares the policy of a file with one class with the limits, before the floor, and the weight. It
// returns the differences.
func checkClass(t *testing.T, file string, want blkio.Limits, weight int) (differences string) {
	t.Helper()
	text, diffs, err := Convert([]byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	line := ""
	for k, amount := range want {
		floor := policy.Default().Floors.Bps
		if key := blkio.Key(k); !key.IsBytes() {
			floor = policy.Default().Floors.Iops
		}
		if amount != blkio.Unset {
			line += " " + blkio.Key(k).String() + "=" + annotation.FormatAmount(blkio.Key(k), max(amount, floor))
		}
	}
	fields := []string{}
	if line != "" {
		fields = append(fields, `limits: ["*`+line+`"]`)
	}
	if line == "" && weight == 0 {
		weight = blkio.DefaultWeight
	}
	if weight > 0 {
		fields = append(fields, fmt.Sprint("weight: ", weight))
	}
	if want := "\n  a: {" + strings.Join(fields, ", ") + "}\n"; !strings.HasSuffix(text, want) {
		t.Errorf("%swant %s in\n%s", file, want, text)
	}
	if _, err := policy.ParseFile([]byte(text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, d := range diffs {
		differences += d.String() + "\n"
	}
	return differences
}

// TestHostileText verifies that names and devices, which an operator chooses, are in comments of one line in
// the policy. They are printable ASCII, and no part of them is read as YAML.
func TestHostileText(t *testing.T) {
	for _, piece := range []string{
		`\x1b[2J`, `x\n  evil: {weight: 7}\n#`, `\r\n  evil: {weight: 7}`, `\u2028evil: {weight: 7}`, `\u202egnp.exe`, `\\`, `\"`, `'`, `a: b # c`, `%s%n%d`, `\0`, `...`, `---`, strings.Repeat("a", 1000), strings.Repeat(`\U0001f648`, 90),
	} {
		file := fmt.Sprintf(`Classes: {"%s": [{Devices: ["%s"], ThrottleReadBps: 1, Weight: 20}, {ThrottleReadBps: 1, Weight: 30}], "x%s": []}`, piece, piece, piece)
		text, diffs, err := Convert([]byte(file))
		if err != nil {
			t.Errorf("%.60s: %v", piece, err)
			continue
		}
		p, err := policy.ParseFile([]byte(text))
		if err != nil || len(p.Classes) != 2 || p.Classes["evil"] != nil {
			t.Errorf("%.60s: %v, %v\n%.500s", piece, err, p, text)
		}
		if strings.Count(text, "\n") != 4+len(diffs)+len(p.Classes)-1 || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%.60s: %q", piece, text)
		}
		for line := range strings.Lines(text) {
			if ok, _ := regexp.MatchString(`^(  # class "|  [a-z0-9-]+: \{(limits|weight): |  "[a-z0-9-]+": \{|apiVersion: |kind: |classes:$)`, strings.TrimSuffix(line, "\n")); !ok {
				t.Errorf("%.60s: the line %.100q", piece, line)
			}
		}
	}
}

// TestYAMLWords verifies that a name that YAML takes for another value than a string is quoted, and comes back
// as it is.
func TestYAMLWords(t *testing.T) {
	for _, name := range []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "0", "7", "010", "0x1f", "1e3", "0b1", "0o7", "1-2", "2001-01-01", "inf", "nan", "e", "none-2", "a", "x-y"} {
		text, diffs, err := Convert([]byte("Classes: {'" + name + "': [{Weight: 10}]}"))
		if err != nil || len(diffs) > 0 {
			t.Errorf("%s: %v, %v", name, diffs, err)
		}
		if p, err := policy.ParseFile([]byte(text)); err != nil || p.Classes[name] == nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// TestRename verifies that a new name is a label that no class has, of at most 63 bytes.
func TestRename(t *testing.T) {
	c := conversion{names: map[string]bool{annotation.NoClass: true}}
	for _, tt := range []struct{ name, want string }{
		{strings.Repeat("a", 63), strings.Repeat("a", 63)},
		{strings.Repeat("a", 64), strings.Repeat("a", 60)},
		{strings.Repeat("A", 63), strings.Repeat("a", 55) + "-2"},
		{strings.Repeat("a", 59) + "..", strings.Repeat("a", 59)},
		{strings.Repeat("a.", 40), strings.Repeat("a-", 29) + "a"},
		{"none", "none-2"},
		{"NONE", "none-3"},
		{"none-2", "none-2-2"},
		{"", "class"},
		{"\xff", "class-2"},
		{"...", "class-3"},
		{"class", "class-4"},
		{"Ünïcode", "n-code"},
		{"a b", "a-b"},
		{"a/b", "a-b-2"},
		{"a--b", "a--b"},
		{"A--B", "a--b-2"},
	} {
		before := len(c.differences)
		if got := c.rename(tt.name); got != tt.want || !annotation.IsLabel(got) || (len(c.differences) > before) != (got != tt.name) {
			t.Errorf("%q: %q, want %q", tt.name, got, tt.want)
		}
	}
	for i := range 1200 { // of one name
		if got := c.rename(strings.Repeat("b", 70)); !annotation.IsLabel(got) {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if len(c.names) != 1+17+1200 {
		t.Errorf("%d names", len(c.names))
	}
}

// TestAllErrors verifies that all wrong fields of a file are reported at once, each once and with its line, in
// the same order each time.
func TestAllErrors(t *testing.T) {
	const file = "Classes:\n  z:\n  - Weight: 5\n    Wieght: 5\n  B:\n  - {Weight: 2000}\n  - Devices: [x]\n    ThrottleReadBps: 5MB\n    ThrottleWriteIOPS: max\n  a: [{Weight: x}]\n"
	want := []string{
		`line 4: Classes.z[0].Wieght: Forbidden: unknown field (did you mean "Classes.z[0].Weight"?)`,
		`line 6: Classes.B[0].Weight: Invalid value: "2000": must be between 10 and 1000, inclusive`,
		`line 8: Classes.B[1].ThrottleReadBps: Invalid value: "5MB": invalid quantity "5MB" (write 5M or 5Mi)`,
		`line 9: Classes.B[1].ThrottleWriteIOPS: Invalid value: "max": a number is required`,
		`line 10: Classes.a[0].Weight: Invalid value: "x": invalid number "x"`,
		`line 3: Classes.z[0].Weight: Invalid value: "5": must be between 10 and 1000, inclusive`,
	}
	for range 5 {
		_, _, err := Convert([]byte(file))
		if err == nil {
			t.Fatal("no error")
		}
		got := strings.Split(strings.TrimSuffix(strings.TrimPrefix(err.Error(), "parse blockio classes: ["), "]"), ", line ")
		for i := range got[1:] {
			got[i+1] = "line " + got[i+1]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
	}
}

// TestOrder verifies that classes are in the order of their names, and differences in that of their classes.
func TestOrder(t *testing.T) {
	text, diffs, err := Convert([]byte("Classes: {c: [], b: [{Weight: 20}], A: [], a: []}"))
	if err != nil {
		t.Fatal(err)
	}
	var classes []string
	for _, d := range diffs {
		classes = append(classes, d.Class)
	}
	if want := []string{"A", "A", "a", "a", "c"}; !slices.Equal(classes, want) {
		t.Errorf("differences of %q, want %q", classes, want)
	}
	if got := regexp.MustCompile(`(?m)^  [a-z].*:`).FindAllString(text, -1); !slices.Equal(got, []string{"  a: {weight:", "  a-2: {weight:", "  b: {weight:", "  c: {weight:"}) {
		t.Errorf("%q\n%s", got, text)
	}
}
