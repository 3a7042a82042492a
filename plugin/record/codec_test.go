package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

func marshal(t testing.TB, r *Record) string {
	t.Helper()
	data, err := r.Marshal(MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(t testing.TB, text string) *Record {
	t.Helper()
	r, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// TestMarshal covers the format, and that it is the inverse of Parse.
func TestMarshal(t *testing.T) {
	at := time.Date(2026, 11, 22, 22, 30, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		r    *Record
		text string
	}{
		{
			"nothing", &Record{Kind: KindContainer, Namespace: "prod", Pod: "db-0", UID: "u1", Container: "db", ContainerID: "c1"},
			`{"v":2,"kind":"container","namespace":"prod","pod":"db-0","uid":"u1","container":"db","containerID":"c1"}`,
		},
		{
			"each kind of file", example(),
			`{"v":2,"kind":"pod","namespace":"prod","pod":"db-0","uid":"u1","disks":{"254:0":"vda","254:16":"vdb"},` +
				`"names":["limits.blkio.noderesource.dev/containers","limits.blkio.noderesource.dev/container.db",""],` +
				`"sources":[{"k":"annotation","n":0,"e":2,"s":true},{"k":"annotation","n":1,"e":1,"t":"/data"},{"k":"backstop","n":2}],` +
				`"settings":["0 io.max wbps=10 254:0","1 io.max wbps=20 254:16","2 io.max riops=30 254:16","1 io.weight default=50"]}`,
		},
		{
			"one line for the devices with the same values",
			&Record{Settings: policy.NewSettings(
				set(blkio.Rbps, vda, blkio.Max, star), set(blkio.Wbps, vda, 5, star), set(blkio.Rbps, vdb, blkio.Max, star), set(blkio.Wbps, vdb, 5, star),
			)},
			`{"v":2,"kind":"","namespace":"","pod":"","uid":"","names":["limits.blkio.noderesource.dev/containers"],` +
				`"sources":[{"k":"annotation","n":0,"e":2,"s":true}],"settings":["0 io.max rbps=max wbps=5 254:0 254:16"]}`,
		},
		{
			"a weight of a pod on a single disk", &Record{Kind: KindPod, Weights: policy.NewSettings(set(blkio.DiskWeight, vdb, 40, star))},
			`{"v":2,"kind":"pod","namespace":"","pod":"","uid":"","names":["limits.blkio.noderesource.dev/containers"],` +
				`"sources":[{"k":"annotation","n":0,"e":2,"s":true}],"weights":["0 io.weight weight=40 254:16"]}`,
		},
		{
			"a value that is not in force", &Record{Kind: KindContainer, Lowered: policy.NewSettings(set(blkio.Wbps, vdb, 40, star))},
			`{"v":2,"kind":"container","namespace":"","pod":"","uid":"","names":["limits.blkio.noderesource.dev/containers"],` +
				`"sources":[{"k":"annotation","n":0,"e":2,"s":true}],"lowered":["0 io.max wbps=40 254:16"]}`,
		},
		{
			"limits that are lent", &Record{Kind: KindContainer, Lent: policy.NewSettings(set(blkio.Wbps, vda, blkio.Max, policy.Source{}), set(blkio.Wbps, vdb, 40, star))},
			`{"v":2,"kind":"container","namespace":"","pod":"","uid":"","names":["limits.blkio.noderesource.dev/containers"],` +
				`"sources":[{"k":"annotation","n":0,"e":2,"s":true}],"lent":["- io.max wbps=max 254:0","0 io.max wbps=40 254:16"]}`,
		},
		{
			"without a source",
			&Record{
				Lowered:  policy.NewSettings(set(blkio.Wbps, vda, 5, policy.Source{}), set(blkio.Weight, blkio.Dev{}, 50, policy.Source{})),
				Exits:    []Exit{{"log", []uint64{7, 8}, policy.NewSettings(set(blkio.Wiops, vda, 9, policy.Source{})), at}},
				Observed: true, Cleared: true, Unvetted: true, Error: `"<e>"`, Warnings: []string{"w"}, Skipped: []string{"s"},
			},
			`{"v":2,"kind":"","namespace":"","pod":"","uid":"","skipped":["s"],"warnings":["w"],"error":"\"<e>\"",` +
				`"observed":true,"cleared":true,"unvetted":true,"lowered":["- io.max wbps=5 254:0","- io.weight default=50"],` +
				`"exits":[{"container":"log","cgroupIDs":[7,8],"limits":["- io.max wiops=9 254:0"],"at":"2026-11-22T22:30:00Z"}]}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { testMarshal(t, tt.r, tt.text) })
	}
}

func testMarshal(t *testing.T, r *Record, want string) {
	t.Helper()
	text := marshal(t, r)
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(r, parse(t, text)); diff != "" {
		t.Errorf("after Parse, -want +got:\n%s", diff)
	}
}

// TestMarshalEdits covers the annotations and labels of a pod that were edited while it runs.
func TestMarshalEdits(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    *Record
		text string
	}{
		{
			"edited annotations", &Record{Kind: KindPod, Edit: &podfacts.Edit{Sandbox: "s1", Annotations: map[string]string{"b": "<2>", "a": "1"}}},
			`{"v":2,"kind":"pod","namespace":"","pod":"","uid":"","edit":{"sandbox":"s1","annotations":{"a":"1","b":"<2>"}}}`,
		},
		{
			"removed annotations", &Record{Kind: KindPod, Edit: &podfacts.Edit{Sandbox: "s1", Annotations: map[string]string{}}},
			`{"v":2,"kind":"pod","namespace":"","pod":"","uid":"","edit":{"sandbox":"s1","annotations":{}}}`,
		},
		{
			"edited labels", &Record{Kind: KindPod, Edit: &podfacts.Edit{Sandbox: "s1", Labels: map[string]string{"tier": "db"}}},
			`{"v":2,"kind":"pod","namespace":"","pod":"","uid":"","edit":{"sandbox":"s1","labels":{"tier":"db"}}}`,
		},
		{
			"removed labels", &Record{Kind: KindPod, Edit: &podfacts.Edit{Sandbox: "s1", Annotations: map[string]string{"a": "1"}, Labels: map[string]string{}}},
			`{"v":2,"kind":"pod","namespace":"","pod":"","uid":"","edit":{"sandbox":"s1","annotations":{"a":"1"},"labels":{}}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { testMarshal(t, tt.r, tt.text) })
	}
}

// TestMarshalClasses covers the sources of values that a class has.
func TestMarshalClasses(t *testing.T) {
	r := &Record{Settings: policy.NewSettings(
		set(blkio.Wbps, vda, 5, policy.Source{Kind: policy.FromRule, Name: "batch/bronze", IsStar: true, Target: "*"}),
		set(blkio.Wbps, vdb, 6, policy.Source{Kind: policy.FromClass, Name: "gold", Target: "/data"}),
	)}
	const want = `{"v":2,"kind":"","namespace":"","pod":"","uid":"","names":["batch/bronze","gold"],` +
		`"sources":[{"k":"rule","n":0,"s":true},{"k":"class","n":1,"t":"/data"}],"settings":["0 io.max wbps=5 254:0","1 io.max wbps=6 254:16"]}`
	if got := marshal(t, r); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if diff := cmp.Diff(r, parse(t, want)); diff != "" {
		t.Error(diff)
	}
}

// TestParseLater verifies that keys of a later program are ignored, and that an invalid value is an error.
func TestParseLater(t *testing.T) {
	const head = `{"v":2,"names":["a"],"sources":[{"k":"annotation","n":0}],"settings":`
	r := parse(t, head+`["0 io.latency target=5 254:0","0 io.max abps=1 wbps=7 254:0"]}`)
	if diff := cmp.Diff(policy.NewSettings(set(blkio.Wbps, vda, 7, policy.Source{Kind: policy.FromAnnotation, Name: "a"})), r.Settings); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{
		``, `0`, `0 io.max`, `1 io.max wbps=7 254:0`, `-1 io.max wbps=7 254:0`, `x io.max wbps=7 254:0`, `0 io.max wbps=7`, `0 io.max wbps=0 254:0`,
		`0 io.max wbps=7k 254:0`, `0 io.max wbps= 254:0`, `0 io.max wbps=7 254`, `0 io.max wbps=7 254:0 riops=3`, `0 io.weight default=7 254:0`,
	} {
		if r, err := Parse(fmt.Appendf(nil, "%s[%q]}", head, line)); !errors.Is(err, ErrParse) {
			t.Errorf("%q is %+v, %v", line, r, err)
		}
	}
	for _, text := range []string{
		`{"v":2,"sources":[{"k":"annotation","n":0}],"settings":["0 io.max wbps=7 254:0"]}`,
		`{"v":2,"names":["a"],"sources":[{"k":"gossip","n":0}],"settings":["0 io.max wbps=7 254:0"]}`,
		`{"v":2,"disks":{"sda":"sda"}}`, `{"v":2,"lowered":["x"]}`, `{"v":2,"weights":["x"]}`, `{"v":2,"exits":[{"limits":["x"]}]}`, `{"v":2,"kind":7}`,
	} {
		if r, err := Parse([]byte(text)); !errors.Is(err, ErrParse) {
			t.Errorf("%s is %+v, %v", text, r, err)
		}
	}
}

// large has 200 disks with four keys each, from this number of entries, and texts of the
// greatest length.
func large(entries int, target string) *Record {
	r := &Record{
		Kind: KindContainer, Namespace: strings.Repeat("n", 63), Pod: strings.Repeat("p", 253), UID: strings.Repeat("0", 36),
		Container: strings.Repeat("c", 63), ContainerID: strings.Repeat("f", 64), Disks: map[blkio.Dev]string{},
	}
	var list []policy.Setting
	for i := range 200 {
		dev := blkio.Dev{Major: 259, Minor: uint32(1000 + i)}
		r.Disks[dev] = fmt.Sprintf("nvme%dn1", i)
		for k := range blkio.NumLimits {
			amount := blkio.Amount(20971520)
			if entries > 1 {
				amount = blkio.Amount(4294967000 + i)
			}
			list = append(list, set(k, dev, amount, policy.Source{
				Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/container." + strings.Repeat("c", 63),
				Entry: (4*i+int(k))%entries + 1, IsStar: target == "*", Target: target,
			}))
		}
	}
	r.Settings = policy.NewSettings(list...)
	for range 17 {
		r.Skipped = append(r.Skipped, strings.Repeat("s", 330))
		r.Warnings = append(r.Warnings, strings.Repeat("w", 300))
	}
	return r
}

// withoutTargets returns settings without the texts for which there is no room.
func withoutTargets(s policy.Settings) policy.Settings {
	out := slices.Clone(s)
	for i := range out {
		if !out[i].Source.IsStar {
			out[i].Source.Target = ""
		}
	}
	return out
}

// TestSize verifies that a record of 200 disks with four keys fits, with all fields that decide. The other
// fields are written the same way the next time.
func TestSize(t *testing.T) {
	for _, tt := range []struct {
		name     string
		r        *Record
		complete bool
	}{
		{"star", large(1, "*"), true},
		{"256 entries", large(256, "/"+strings.Repeat("p", 63)), false},
		{"800 entries", large(800, "/"+strings.Repeat("p", 63)), false},
		{"800 entries of backslashes", large(800, strings.Repeat(`\`, 64)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := marshal(t, tt.r)
			if len(text) > MaxSize {
				t.Fatalf("%d bytes", len(text))
			}
			r := parse(t, text)
			if diff := cmp.Diff(withoutTargets(tt.r.Settings), withoutTargets(r.Settings)); diff != "" {
				t.Error(diff)
			}
			if complete := cmp.Equal(tt.r, r); complete != tt.complete {
				t.Errorf("complete: %v, want %v", complete, tt.complete)
			}
			if again := marshal(t, r); again != text {
				t.Errorf("%d bytes, then %d", len(text), len(again))
			}
		})
	}
}

// TestSizeOfPod verifies that a pod's directory has room for its own record and those of its containers.
func TestSizeOfPod(t *testing.T) {
	const kernfs = 128 << 10 // KERNFS_USER_XATTR_SIZE_LIMIT
	for _, containers := range []int{0, 1, 2, 10, 14} {
		all := 0
		for range 1 + containers {
			data, err := large(1, "*").Marshal(Room(containers, 0))
			if err != nil {
				t.Fatal(err)
			}
			all += len(data) + len(Xattr) + 70 // and the container's ID
		}
		if all > kernfs {
			t.Errorf("%d containers: %d bytes", containers, all)
		}
	}
}

// TestShorten verifies that texts for people are left out first, the least important one first.
func TestShorten(t *testing.T) {
	r := large(1, "/data")
	var got []string
	for room := MaxSize; len(got) < 5; {
		data, err := r.Marshal(room)
		if err != nil {
			t.Fatal(err)
		}
		left := parse(t, string(data))
		got = append(got, fmt.Sprintf("targets %v, warnings %v, disks %v", left.Settings[0].Source.Target != "", left.Warnings != nil, left.Disks != nil))
		if diff := cmp.Diff(withoutTargets(r.Settings), withoutTargets(left.Settings)); diff != "" {
			t.Fatal(diff)
		}
		room = len(data) - 1
	}
	want := []string{
		"targets true, warnings true, disks true", "targets false, warnings true, disks true", "targets false, warnings false, disks true",
		"targets false, warnings false, disks false", "targets false, warnings false, disks false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTooLarge(t *testing.T) {
	r := &Record{}
	for i := range uint32(8000) {
		r.Settings = append(r.Settings, set(blkio.Wbps, blkio.Dev{Major: 259, Minor: i}, 7, path))
	}
	if data, err := r.Marshal(MaxSize); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func BenchmarkMarshal(b *testing.B) {
	r := example()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Marshal(MaxSize); err != nil {
			b.Fatal(err)
		}
	}
}
