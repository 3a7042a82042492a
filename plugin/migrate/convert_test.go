package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// conversions are classes, their lines in the policy, and the differences.
var conversions = []struct {
	text, want string
	diffs      []string
}{
	{`a: [{Weight: 10}]`, `"a": {weight: 10}`, nil},
	{`a: [{Weight: 10}, {Weight: "20"}]`, `"a": {weight: 20}`, nil},
	{`a: [{Weight: 1k}]`, `"a": {weight: 1000}`, nil},
	{`a: [{Devices: [/dev/sda], ThrottleReadBps: 50M}]`, `"a": {limits: ["disk:sda rbps=50M"]}`, nil},
	{`a: [{Devices: ["/dev/sd[a-z]", /dev/disk/by-id/*SSD*], ThrottleReadBps: 50M, Weight: 50}, {Weight: 50}]`, `"a": {limits: ["disk:sd[a-z] rbps=50M", "disk:/dev/disk/by-id/*SSD* rbps=50M"], weight: 50}`, nil},
	{
		`a: [{Devices: [/dev/sda], ThrottleWriteBps: 1048576, ThrottleReadIOPS: 2000, ThrottleWriteIOPS: 3}]`, `"a": {limits: ["disk:sda wbps=1Mi riops=2k wiops=8"]}`,
		[]string{`class "a": ThrottleWriteIOPS 3 of Devices /dev/sda is under the floor of the policy: wiops=8`},
	},
	{ // the last one has precedence
		`a: [{Devices: [/dev/x*], ThrottleReadBps: 9M, ThrottleWriteIOPS: 9}, {Devices: [/dev/xa], ThrottleReadBps: 7M}, {Devices: [/dev/x*], ThrottleReadBps: 8M}]`,
		`"a": {limits: ["disk:x* rbps=8M", "disk:xa rbps=7M", "disk:x* wiops=9"]}`, nil,
	},
	{
		`a: [{Devices: [/dev/x], ThrottleReadBps: 9M}, {Devices: [/dev/y], ThrottleReadBps: 7M, Weight: 50}, {Devices: [/dev/z], Weight: 30}]`, `"a": {limits: ["disk:y rbps=7M", "disk:x rbps=9M"], weight: 30}`,
		[]string{
			`class "a": the weight 30 holds for each disk that the container uses`,
			`class "a": Weight 50 of Devices /dev/y is 30 here: a class has one weight`,
		},
	},
	{
		`a: [{Devices: [], ThrottleReadBps: 9M, Weight: 50}, {Devices: [], Weight: 10}, {Devices: []}, {Weight: 70}]`, `"a": {weight: 70}`,
		[]string{
			`class "a": an empty list of Devices is left out: the runtimes leave it out too`,
			`class "a": an empty list of Devices is left out: the runtimes leave it out too`,
			`class "a": an empty list of Devices is left out: the runtimes leave it out too`,
		},
	},
	{`a: [{}]`, `"a": {weight: 100}`, []string{`class "a": it has neither limits nor a weight, so it has the default weight here`}},
	{`a: [{Devices: [/dev/x], ThrottleReadBps: 65536, ThrottleWriteBps: 64Ki, ThrottleReadIOPS: 8, ThrottleWriteIOPS: "8"}]`, `"a": {limits: ["disk:x rbps=64Ki wbps=64Ki riops=8 wiops=8"]}`, nil},
	{
		`a: [{Devices: [/dev/x], ThrottleReadBps: 65535, ThrottleWriteIOPS: 4294967294}, {Devices: [/dev/x, /dev/y], ThrottleReadBps: 65535, Weight: 1000}]`,
		`"a": {limits: ["disk:x rbps=64Ki", "disk:y rbps=64Ki", "disk:x wiops=4294967294"], weight: 1000}`,
		[]string{
			`class "a": ThrottleReadBps 65535 of Devices /dev/x is under the floor of the policy: rbps=64Ki`,
			`class "a": ThrottleReadBps 65535 of Devices /dev/x, /dev/y is under the floor of the policy: rbps=64Ki`,
			`class "a": the weight 1000 holds for each disk that the container uses`,
		},
	},
	{
		`a: [{Devices: [/dev/x], ThrottleReadBps: 0, Weight: 20}, {Devices: [/dev/y], ThrottleReadBps: 1.5Mi, Weight: 20}, {Weight: 20}]`, `"a": {limits: ["disk:y rbps=1536Ki"], weight: 20}`,
		[]string{`class "a": ThrottleReadBps 0 of Devices /dev/x is left out`},
	},
	{
		`a: [{Devices: [x, /x, /dev//x, "/dev/[", "/dev/a b", "/dev/a;b", "/dev/a wbps=5", /data/disk, /dev/mapper/vg-x, '/dev/"\x'], ThrottleReadBps: 1Mi}]`, `"a": {limits: ["disk:/dev/mapper/vg-x rbps=1Mi", "disk:\"\\x rbps=1Mi"]}`,
		[]string{
			`class "a": the limits of the device "x" are left out: it is not an absolute path`,
			`class "a": the limits of the device "/x" are left out: "/x" is not a path below /dev`,
			`class "a": the limits of the device "/dev//x" are left out: the path "/dev//x" is not clean`,
			`class "a": the limits of the device "/dev/[" are left out: invalid pattern "["`,
			`class "a": the limits of the device "/dev/a b" are left out: "b" is not key=value`,
			`class "a": the limits of the device "/dev/a;b" are left out: 2 entries in one element`,
			`class "a": the limits of the device "/dev/a wbps=5" are left out: duplicate key "wbps"`,
			`class "a": the limits of the device "/data/disk" are left out: "/data/disk" is not a path below /dev`,
		},
	},
	{
		`a: [{Devices: ["/dev/a rbps=64Ki"], ThrottleWriteBps: 1Mi, Weight: 90}, {Weight: 90}]`, `"a": {weight: 90}`,
		[]string{`class "a": the limits of the device "/dev/a rbps=64Ki" are left out: it has a blank`},
	},
	{
		`a: [{ThrottleReadBps: 9M}]`, `"a": {weight: 100}`,
		[]string{
			`class "a": throttling without Devices is left out: the runtimes leave it out too`,
			`class "a": it has neither limits nor a weight, so it has the default weight here`,
		},
	},
	{
		`a: [{Devices: [], ThrottleReadBps: 9M, Weight: 40}, {Devices: [/dev/x], ThrottleReadBps: 10M}]`, `"a": {limits: ["disk:x rbps=10M"]}`,
		[]string{`class "a": an empty list of Devices is left out: the runtimes leave it out too`},
	},
	{
		`a: [{Devices: [/dev/sda], ThrottleReadBps: 0, Weight: 40}, {Weight: 60}]`, `"a": {weight: 60}`,
		[]string{
			`class "a": ThrottleReadBps 0 of Devices /dev/sda is left out`,
			`class "a": Weight 40 of Devices /dev/sda is 60 here: a class has one weight`,
		},
	},
}

// TestConvert covers the line of a class, and the differences.
func TestConvert(t *testing.T) {
	for _, tt := range conversions {
		text, diffs, err := Convert([]byte("Classes:\n  " + tt.text + "\n"))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		var got []string
		for _, d := range diffs {
			got = append(got, d.String())
			if !strings.Contains(text, "  # "+d.String()+"\n") {
				t.Errorf("%s: %q is not a comment of\n%s", tt.text, d, text)
			}
		}
		if d := cmp.Diff(tt.diffs, got); d != "" || !strings.Contains(text, "  "+tt.want+"\n") {
			t.Errorf("%s: want %s in\n%sdifferences -want +got:\n%s", tt.text, tt.want, text, d)
		}
		if _, err := policy.ParseFile([]byte(text)); err != nil {
			t.Errorf("%s: %v\n%s", tt.text, err, text)
		}
	}
}

// TestNames verifies that each class has a name in the policy, which is a valid one.
func TestNames(t *testing.T) {
	for names, want := range map[string][]string{
		"gold, silver":                {"gold", "silver"},
		"none":                        {"none-2"},
		"low_prio.fast":               {"low-prio-fast"},
		"-a-, ---, 'x: y'":            {"a", "class", "x-y"},
		"'true', 'no', '7', 'on'":     {"7", "no", "on", "true"},
		strings.Repeat("x", 80):       {strings.Repeat("x", 63)},
		"\"a\\n- b\", 'c # d', \"é\"": {"a---b", "c-d", "class"},
	} {
		file := "Classes:\n"
		for name := range strings.SplitSeq(names, ", ") {
			file += "  " + name + ": [{Weight: 10}]\n"
		}
		text, _, err := Convert([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", names, err)
			continue
		}
		p, err := policy.ParseFile([]byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", names, err, text)
			continue
		}
		var got []string
		for name := range p.Classes {
			got = append(got, name)
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", names, d)
		}
	}
}

// TestBounds verifies that annotations can choose each class of the policy.
func TestBounds(t *testing.T) {
	for weight, want := range map[string]int{"100": 100, "50": 100, "101": 101, "1000": 1000} {
		text, _, err := Convert([]byte("Classes: {a: [{Weight: " + weight + "}], b: [{Weight: 10}]}"))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := policy.ParseFile([]byte(text)); err != nil || p.Bounds.MaxWeight != want {
			t.Errorf("weight %s: %v\n%s", weight, err, text)
		}
	}
}

// fileErrors are files that are refused, with a part of the error.
var fileErrors = []struct{ text, want string }{
	{"", `Classes: Required value: the file has no class`},
	{"clases: {}", `clases: Forbidden: unknown field (did you mean "Classes"?)`},
	{"blockio:\n  Classes: {a: []}", `parse blockio classes: line 1: blockio: Forbidden: unknown field (move what is below blockio to the top)`},
	{"Classes: {a: []}\nclasses: {a: []}", `line 2: key "Classes" already set in map`},
	{"Classes: []", `Classes: Invalid value: expected an object with fields, found array`},
	{"Classes: {a: {Weight: 5}}", `Classes.a: Invalid value: expected a list, found object`},
	{"Classes:\n  a:\n  - weight: 5", `line 3: Classes.a[0].Weight: Invalid value: "5": must be between`},
	{"Classes: {a: [{Devices: /dev/sda}]}", `Classes.a[0].Devices: Invalid value: expected a list, found string`},
	{"Classes: {a: [{Weight: 9}]}", `Classes.a[0].Weight: Invalid value: "9": must be between 10 and 1000, inclusive`},
	{"Classes: {a: [{Weight: 1001}]}", `must be between 10 and 1000, inclusive`},
	{"Classes: {a: [{Weight: 0}]}", `must be between 10 and 1000, inclusive`},
	{"Classes: {a: [{Weight: max}]}", `Classes.a[0].Weight: Invalid value: "max": must be between 10 and 1000, inclusive`},
	{"Classes: {a: [{Devices: [a], ThrottleWriteBps: max}]}", `Classes.a[0].ThrottleWriteBps: Invalid value: "max": a number is required`},
	{"Classes: {a: [{Weight: 10.5}]}", `Classes.a[0].Weight: Invalid value: "10.5": "10.5" is not a whole number`},
	{"Classes: {a: [{Weight: -10}]}", `Classes.a[0].Weight: Invalid value: "-10": "-10" is negative`},
	{"Classes: {a: [{Weight: [50]}]}", `Classes.a[0].Weight: Invalid value: "[50]": invalid number "[50]"`},
	{"Classes: {a: [], b: [[x]]}", `Classes.b[0]: Invalid value: expected an object with fields, found array`},
	{"Classes: {a: [{Devices: [[x]]}]}", `Classes.a[0].Devices[0]: Invalid value: expected a string, found array`},
	{"Classes: {a: [{Devices: [a, 1]}]}", `Classes.a[0].Devices[1]: Invalid value: expected a string, found number`},
	{"Classes: {a: [{}]}\n---\t{Classes: {b: []}}", `expected one YAML document, found more`},
	{"Classes: {a: [{ThrottleBps: 5M}]}", `Classes.a[0].ThrottleBps: Forbidden: unknown field`},
	{"Classes: {a: }", `Classes.a: Required value`},
	{"Classes: {a: [{Devices: [a], ThrottleReadBps: 8Ei}]}", `"8Ei" is too large (write less than 8Ei, or max for no limit)`},
	{"Classes: {a: [{Devices: [a], ThrottleReadIOPS: 4294967295}]}", `"4294967295" is too large`},
	{"Classes: {a: [{Devices: [a], ThrottleReadBps: 5MB}]}", `Classes.a[0].ThrottleReadBps: Invalid value: "5MB": invalid quantity "5MB"`},
	{"Classes: {a: [{Devices: [a], ThrottleReadBps: 1e99999999}]}", `Classes.a[0].ThrottleReadBps: Invalid value`},
	{"Classes: {a: [{Devices: [a], ThrottleReadBps: -1}]}", `Classes.a[0].ThrottleReadBps: Invalid value`},
	{"Classes: {a: [{Devices: [a], ThrottleWriteIOPS: 1.5}]}", `Classes.a[0].ThrottleWriteIOPS: Invalid value: "1.5"`},
}

// TestCase verifies that the case of fields does not count, as in the runtimes, and that of the names of classes does.
func TestCase(t *testing.T) {
	const right = "Classes:\n  classes:\n  - Devices: [/dev/sdä, '/dev/sdb']\n    ThrottleReadBps: 50M\n    ThrottleWriteIOPS: 5k\n  Weight:\n  - {Devices: [Weight], Weight: 80}\n"
	want, differences, err := Convert([]byte(right))
	if err != nil || !strings.Contains(want, "\"classes\": {") || !strings.Contains(want, `class "Weight"`) {
		t.Fatalf("%v\n%s", err, want)
	}
	for _, text := range []string{
		"classes:\n  classes:\n  - devices: [/dev/sdä, '/dev/sdb']\n    throttlereadbps: 50M\n    throttleWriteIops: 5k\n  Weight:\n  - {devices: [Weight], weight: 80}\n",
		`{"classes": {"classes": [{"DEVICES": ["/dev/sdä", "/dev/sdb"], "throttleReadBPS": "50M", "throttlewriteiops": "5k"}], "Weight": [{"devices": ["Weight"], "weight": 80}]}}`,
		"---\n'CLASSES': # ä\n  \"classes\":\n  - { devices: [/dev/sdä, /dev/sdb], ThrottleReadBps: 50M, \"throttleWriteIOPS\": 5k}\n  Weight: [{devices: [Weight], weight: 80}]\n",
	} {
		got, d, err := Convert([]byte(text))
		if err != nil || got != want || len(d) != len(differences) {
			t.Errorf("%s\n%v\n got %s\nwant %s", text, err, got, want)
		}
	}
}

func TestConvertErrors(t *testing.T) {
	for _, tt := range fileErrors {
		text, diffs, err := Convert([]byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), "parse blockio classes: ") || !strings.Contains(err.Error(), tt.want) || text != "" || diffs != nil {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// FuzzConvert verifies that a file is refused, or the policy is valid, has each class, and is the same each
// time.
func FuzzConvert(f *testing.F) {
	for _, tt := range fileErrors {
		f.Add(tt.text)
	}
	f.Add("Classes: {a: [{Weight: 50}, {Devices: [\"/dev/sd\\n#\"], ThrottleReadBps: 5M, ThrottleWriteIOPS: 1}], 'b: c': []}")
	f.Add("Classes: {\"\": [{Weight: 50}], none: [], yes: []}")
	f.Fuzz(func(t *testing.T, file string) {
		text, _, err := Convert([]byte(file))
		again, _, _ := Convert([]byte(file))
		if text != again {
			t.Errorf("%s\nthen\n%s", text, again)
		}
		if err != nil {
			return
		}
		classes, err := parse([]byte(file))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := policy.ParseFile([]byte(text)); err != nil || len(p.Classes) != len(classes) {
			t.Errorf("%v\n%s", err, text)
		}
	})
}
