package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// parameterNames are the names of the keys in a file of blockio classes.
var parameterNames = [blkio.NumLimits]string{blkio.Rbps: "ThrottleReadBps", blkio.Wbps: "ThrottleWriteBps", blkio.Riops: "ThrottleReadIOPS", blkio.Wiops: "ThrottleWriteIOPS"}

// modelClass is a random class, and what it means on the disks d0, d1 and d2.
type modelClass struct {
	file        string
	limits      [3]blkio.Limits
	weight      int // 0 for none
	givenValues [blkio.NumLimits][]blkio.Amount
}

// randomClass returns a class in which the last element with a value for a disk counts, unless the value is 0.
func randomClass(random *rand.Rand) modelClass {
	values := [blkio.NumLimits][]blkio.Amount{blkio.Rbps: {0, 1, 65535, 65536, 1 << 20, 5e6}, blkio.Wbps: {0, 65537, 1 << 40, 1<<63 - 2}, blkio.Riops: {1, 7, 8, 9, 2000}, blkio.Wiops: {0, 8, 4294967294}}
	globs := map[string][]int{"/dev/d0": {0}, "/dev/d?": {0, 1, 2}, "/dev/d[12]": {1, 2}, "/dev/disk/by-id/odd": {1}, "/dev/e*": nil}
	names := slices.Sorted(maps.Keys(globs))
	m, lowest := modelClass{file: "Classes:\n  a:\n"}, 0
	for range 1 + random.IntN(5) {
		parts, disks, hasDevices := []string{}, map[int]bool{}, random.IntN(4) > 0
		if hasDevices {
			one, two := names[random.IntN(len(names))], names[random.IntN(len(names))]
			parts = append(parts, fmt.Sprintf("Devices: [%q, %q]", one, two))
			for _, d := range slices.Concat(globs[one], globs[two]) {
				disks[d] = true
			}
		}
		for k, name := range parameterNames {
			if random.IntN(2) == 0 {
				continue
			}
			amount := values[k][random.IntN(len(values[k]))]
			parts = append(parts, fmt.Sprintf("%s: %d", name, uint64(amount)))
			if !hasDevices {
				continue
			}
			m.givenValues[k] = append(m.givenValues[k], amount)
			for d := range disks {
				if amount > 0 {
					m.limits[d][k] = max(amount, floorOf(blkio.Key(k)))
				}
			}
		}
		if weight := []int{0, 10, 100, 500, 1000}[random.IntN(5)]; weight > 0 {
			parts = append(parts, fmt.Sprint("Weight: ", weight))
			switch {
			case !hasDevices:
				m.weight = weight
			case lowest == 0 || weight < lowest:
				lowest = weight
			}
		}
		m.file += "  - {" + strings.Join(parts, ", ") + "}\n"
	}
	m.weight = cmp.Or(m.weight, lowest)
	return m
}

func floorOf(k blkio.Key) blkio.Amount {
	if k.IsBytes() {
		return policy.Default().Floors.Bps
	}
	return policy.Default().Floors.Iops
}

// TestRandomClasses verifies that a container with the class of the policy has on each disk the value of the last
// element that matches, and not less than the floor. The weight is the last one without devices or, if there is
// none, the lowest one. Each value that is not in the policy is named by a difference.
func TestRandomClasses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := policy.Container{Name: "c", MemoryLimited: true, Stack: policy.Stack{Links: map[blkio.Dev][]string{{Major: 1, Minor: 1}: {"/dev/disk/by-id/odd"}}}}
	for i := range uint32(3) {
		c.Rootfs.Disks = append(c.Rootfs.Disks, blkio.Disk{Dev: blkio.Dev{Major: 1, Minor: i}, Name: fmt.Sprint("d", i)})
	}
	request := annotation.Parse(map[string]string{"class.blkio.noderesource.dev/containers": "a"})
	for range 500 {
		m := randomClass(random)
		text, diffs, err := Convert([]byte(m.file))
		if err != nil {
			t.Fatalf("%v\n%s", err, m.file)
		}
		p, err := policy.ParseFile([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		d, err := p.ForPod(&policy.PodFacts{}, request).Container(c)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got := d.Settings.DevLimits()
		for i, want := range m.limits {
			if diff := gocmp.Diff(want, got[blkio.Dev{Major: 1, Minor: uint32(i)}]); diff != "" {
				t.Errorf("%s%sd%d: -want +got:\n%s", m.file, text, i, diff)
			}
		}
		if w, _ := d.Settings.Weight(); int(w.Amount) != m.weight && (m.weight != 0 || int(w.Amount) != blkio.DefaultWeight) {
			t.Errorf("%s%sweight %d, want %d", m.file, text, w.Amount, m.weight)
		}
		for k, name := range parameterNames {
			for _, amount := range m.givenValues[k] {
				if about := fmt.Sprintf("%s %d of ", name, uint64(amount)); amount < floorOf(blkio.Key(k)) && !strings.Contains(fmt.Sprint(diffs), about) {
					t.Errorf("%sno difference about%s in\n%s", m.file, about, diffs)
				}
			}
		}
	}
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
			if ok, _ := regexp.MatchString(`^(  # class "|  "[a-z0-9-]+": \{(limits|weight): |apiVersion: |kind: |classes:$)`, strings.TrimSuffix(line, "\n")); !ok {
				t.Errorf("%.60s: the line %.100q", piece, line)
			}
		}
	}
}

// TestYAMLWords verifies that a name that YAML takes for another value than a string comes back as it is.
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
		if d := gocmp.Diff(want, got); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
	}
}

// TestOneName verifies that two classes with one name in the policy are an error.
func TestOneName(t *testing.T) {
	const want = `convert blockio classes: classes "Low" and "low" both become low (rename one of them)`
	if text, _, err := Convert([]byte("Classes: {low: [{Weight: 30}], Low: [{Weight: 40}]}")); err == nil || err.Error() != want || text != "" {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestManyDevices verifies that a class with more devices than a class of the policy can have entries is an error.
func TestManyDevices(t *testing.T) {
	file := func(devices int) []byte {
		text := "Classes: {a: [{ThrottleReadBps: 1Mi, Devices: ["
		for i := range devices {
			text += fmt.Sprintf("/dev/d%d, ", i)
		}
		return []byte(text + "]}]}")
	}
	if text, _, err := Convert(file(annotation.MaxEntries)); err != nil || strings.Count(text, "disk:") != 256 {
		t.Errorf("%v\n%s", err, text)
	}
	const want = `convert blockio classes: class "a" has more than 256 devices with limits (write patterns for them)`
	if text, _, err := Convert(file(annotation.MaxEntries + 1)); err == nil || err.Error() != want || text != "" {
		t.Errorf("%v", err)
	}
}

// TestOrder verifies that classes are in the order of their names, and differences in that of their classes.
func TestOrder(t *testing.T) {
	text, diffs, err := Convert([]byte("Classes: {c: [], b: [{Weight: 20}], A: [], d: []}"))
	if err != nil {
		t.Fatal(err)
	}
	var classes []string
	for _, d := range diffs {
		classes = append(classes, d.Class)
	}
	if want := []string{"A", "A", "c", "d"}; !slices.Equal(classes, want) {
		t.Errorf("differences of %q, want %q", classes, want)
	}
	if got := regexp.MustCompile(`(?m)^  ".*":`).FindAllString(text, -1); !slices.Equal(got, []string{`  "a":`, `  "b":`, `  "c":`, `  "d":`}) {
		t.Errorf("%q\n%s", got, text)
	}
}
