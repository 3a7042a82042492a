package podmetrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

var vda, vdb = blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "vda"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "vdb"}

// nameOf names the disks of these tests. The device of any other one has left.
func nameOf(dev blkio.Dev) string {
	for _, d := range []blkio.Disk{vda, vdb, {Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "vda"}} {
		if d.Dev == dev {
			return d.Name
		}
	}
	return dev.String()
}

func limit(d blkio.Disk, k blkio.Key, amount blkio.Amount) blkio.Value {
	return blkio.Value{Address: blkio.Address{Key: k, Dev: d.Dev}, Amount: amount}
}

// gather returns the values of the metrics, by name and labels. A metric that the registry refuses fails the test, as it
// would fail a scrape.
func gather(t *testing.T, c *Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(collector{c}); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "nri_blkio_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

// collector describes nothing, so that a registration is no scrape.
type collector struct{ *Collector }

func (collector) Describe(chan<- *prometheus.Desc) {}

// put gives a pod an io.stat of these lines, and a waiting time of 1.5 seconds.
func put(t *testing.T, k *fakenode.Kernel, cgroup string, lines ...string) {
	t.Helper()
	k.Make(cgroup, true)
	k.Replace(cgroup, "io.stat", strings.Join(append(lines, ""), "\n"))
	k.Replace(cgroup, "io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
}

// TestCollect verifies the metrics of a pod with two containers, one of which has a limit; of pods without limits, one of which has
// used no disk; and of one that was removed.
func TestCollect(t *testing.T) {
	k := fakenode.NewKernel(t)
	put(t, k, "db", "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0", "9:7 rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0")
	put(t, k, "db/c", "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0")
	put(t, k, "web", "8:0 rbytes=0 wbytes=0 rios=0 wios=5 dbytes=0 dios=0", "8:16 rbytes=7 wbytes=0 rios=1 wios=0 dbytes=0 dios=0")
	put(t, k, "idle")
	k.Replace(".", "io.stat", "8:0 rbytes=100 wbytes=200 rios=10 wios=20 dbytes=0 dios=0\n")
	all := []Pod{
		{
			Namespace: "prod", Name: "db", Cgroup: "db", Parts: []Part{{"db/c", []blkio.Value{limit(vda, blkio.Wbps, 5)}}},
			Limits: []blkio.Value{limit(vda, blkio.Wbps, 5), limit(vda, blkio.Riops, 7)},
		},
		{Namespace: "prod", Name: "web", Cgroup: "web"},
		{Namespace: "prod", Name: "idle", Cgroup: "idle"},
		{Namespace: "prod", Name: "removed", Cgroup: "removed", Limits: []blkio.Value{limit(vdb, blkio.Rbps, 9)}, Parts: []Part{{"removed", []blkio.Value{limit(vdb, blkio.Rbps, 9)}}}},
	}
	c := New(func() []Pod { return all }, nameOf, k.Open(t, t.Context().Done()), nil)
	want := map[string]float64{
		"pods_left_out": 0, "pod_io_waiting_seconds_total prod db": 1.5, "pod_io_waiting_seconds_total prod web": 1.5, "pod_io_waiting_seconds_total prod idle": 1.5,
		"pod_limit_bytes_per_second vda prod write db": 5, "pod_limit_operations_per_second vda prod read db": 7,
		"pod_limit_bytes_per_second vdb prod read removed": 9,
		"pod_bytes_total vda prod read db":                 10, "pod_bytes_total vda prod write db": 20, "pod_operations_total vda prod db": 3,
		"pod_bytes_total 9:7 prod read db": 1, "pod_bytes_total 9:7 prod write db": 1, "pod_operations_total 9:7 prod db": 2,
		"pod_limit_seconds_total vda prod db": 0,
		"pod_bytes_total vdb prod read web":   7, "pod_bytes_total vdb prod write web": 0, "pod_operations_total vdb prod web": 1,
		"disk_bytes_total vda read": 100, "disk_bytes_total vda write": 200, "disk_operations_total vda": 30,
	}
	if d := cmp.Diff(want, gather(t, c)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	time.Sleep(time.Millisecond)
	put(t, k, "db/c", "8:0 rbytes=10 wbytes=1000000 rios=1 wios=2 dbytes=0 dios=0")
	again := gather(t, c)["pod_limit_seconds_total vda prod db"]
	if again <= 0 || again > 60 {
		t.Errorf("%v seconds at the limit", again)
	}
}

// TestUnique verifies that pods with the same names are no error, and neither are names that are no text, or disks of the same name.
func TestUnique(t *testing.T) {
	k := fakenode.NewKernel(t)
	var all []Pod
	for i, name := range []string{"db", "db", "db-\xff", "db-?"} {
		cgroup := fmt.Sprintf("pod%d", i)
		const used = " rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0"
		put(t, k, cgroup, "8:0"+used, "8:32"+used)
		limits := []blkio.Value{limit(vda, blkio.Rbps, 1)}
		all = append(all, Pod{Namespace: "a", Name: name, Cgroup: cgroup, Limits: limits, Parts: []Part{{cgroup, limits}}})
	}
	got := gather(t, New(func() []Pod { return all }, nameOf, k.Open(t, t.Context().Done()), nil))
	if len(got) != 1+2*6 {
		t.Errorf("%v", got)
	}
}

// TestHangingRead verifies that a scrape whose reads hang has the rest, also if there are many of them.
func TestHangingRead(t *testing.T) {
	k := fakenode.NewKernel(t)
	put(t, k, "db")
	limits := []blkio.Value{limit(vda, blkio.Rbps, 1)}
	c := New(func() []Pod {
		return []Pod{{Namespace: "prod", Name: "db", Cgroup: "db", Limits: limits, Parts: []Part{{"db", limits}}}}
	}, nameOf, k.Open(t, t.Context().Done()), nil)
	release := k.HangReads("db", "io.stat")
	defer release()
	want := map[string]float64{"pods_left_out": 0, "pod_limit_bytes_per_second vda prod read db": 1}
	for range 3 { // the third finds two that hang
		began := time.Now()
		if d := cmp.Diff(want, gather(t, c)); d != "" || time.Since(began) > 10*readDeadline {
			t.Errorf("after %v: -want +got:\n%s", time.Since(began), d)
		}
	}
}

// TestTimeAtLimits verifies how much time counts between two readings, 10 seconds apart.
func TestTimeAtLimits(t *testing.T) {
	type stats = map[string]map[blkio.Dev]blkio.Stat
	on := func(s blkio.Stat) map[blkio.Dev]blkio.Stat { return map[blkio.Dev]blkio.Stat{vda.Dev: s} }
	rbps, wbps, wiops := limit(vda, blkio.Rbps, 100), limit(vda, blkio.Wbps, 100), limit(vda, blkio.Wiops, 10)
	for name, tt := range map[string]struct {
		parts          []Part
		earlier, later stats
		seconds        time.Duration // between the readings; 0 is 10
		want           float64
	}{
		"at its limit":             {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": on(blkio.Stat{Wbytes: 5})}, later: stats{"a": on(blkio.Stat{Wbytes: 1005})}, want: 10},
		"half of it":               {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 500})}, want: 5},
		"reads, then writes":       {parts: []Part{{"a", []blkio.Value{rbps, wbps}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Rbytes: 300, Wbytes: 400})}, want: 7},
		"bytes, or operations":     {parts: []Part{{"a", []blkio.Value{wbps, wiops}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 300, Wios: 60})}, want: 6},
		"two containers":           {parts: []Part{{"a", []blkio.Value{wbps}}, {"b", []blkio.Value{wbps}}}, earlier: stats{"a": nil, "b": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 200}), "b": on(blkio.Stat{Wbytes: 300})}, want: 5},
		"no more than passed":      {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: math.MaxUint64})}, want: 10},
		"another direction":        {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Rbytes: 900, Rios: 9})}, want: 0},
		"a container began":        {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{}, later: stats{"a": on(blkio.Stat{Wbytes: 900})}, want: 0},
		"it ended":                 {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": nil}, later: stats{}, want: 0},
		"the disk was replaced":    {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": on(blkio.Stat{Wbytes: 900})}, later: stats{"a": on(blkio.Stat{Wbytes: 100})}, want: 0},
		"a newer one was earlier":  {parts: []Part{{"a", []blkio.Value{wbps}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 900})}, seconds: -1, want: 0},
		"no limit in this cgroup":  {earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 900})}, want: 0},
		"a limit on another disk":  {parts: []Part{{"a", []blkio.Value{limit(vdb, blkio.Wbps, 1)}}}, earlier: stats{"a": nil}, later: stats{"a": on(blkio.Stat{Wbytes: 900})}, want: 0},
		"a pod's own, and smaller": {parts: []Part{{"pod", []blkio.Value{wbps}}}, earlier: stats{"pod": nil}, later: stats{"pod": on(blkio.Stat{Wbytes: 800})}, want: 8},
	} {
		began, passed := time.Now(), 10*time.Second
		if tt.seconds != 0 {
			passed = tt.seconds * time.Second
		}
		earlier := &reading{time: began, stats: tt.earlier, atLimits: map[blkio.Dev]float64{vda.Dev: 3}}
		later := &reading{pod: &Pod{Parts: tt.parts}, time: began.Add(passed), stats: tt.later, atLimits: map[blkio.Dev]float64{}}
		later.countSince(earlier)
		if got := later.atLimits[vda.Dev] - 3; math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v seconds, want %v", name, got, tt.want)
		}
		if later.time.Before(began) {
			t.Errorf("%s: the older reading is kept", name)
		}
	}
}

// usedBy returns the reading of a pod without limits that uses so many disks, whose numbers begin with first.
func usedBy(namespace, name string, first, disks int) *reading {
	r := &reading{pod: &Pod{Namespace: namespace, Name: name, Cgroup: namespace + name}}
	for i := range disks {
		r.used = append(r.used, blkio.Dev{Major: 9, Minor: uint32(first + i)})
	}
	return r
}

// TestBound verifies that pods of a namespace with many do not displace those of others, that the waiting of each pod comes before the use
// of any, that a pod has the use of all of its disks or of none, that the maximum holds, and that the order does not matter.
func TestBound(t *testing.T) {
	var all []*reading
	for i := range 50 {
		all = append(all, usedBy("many", fmt.Sprint("p", i), 0, 2))
	}
	for i := range 5 {
		r := usedBy("few", fmt.Sprint("p", i), 0, 1)
		r.pod.Limits, r.pod.Parts = make([]blkio.Value, 2), []Part{{r.pod.Cgroup, make([]blkio.Value, 2)}}
		all = append(all, r)
	}
	all = append(all, usedBy("huge", "p", 0, 1000))
	const room = 200
	in, leftOut := bound(all, room)
	count, series, disks, with := map[string]int{}, 0, map[blkio.Dev]bool{}, map[*reading]int{}
	for _, l := range in {
		kind := " waiting"
		if l.disks != nil {
			kind = " use"
		}
		count[l.of.pod.Namespace+kind]++
		with[l.of]++
		series += l.series(disks)
		l.addDisks(disks)
	}
	want := map[string]int{"few waiting": 5, "few use": 5, "many waiting": 50, "many use": 18, "huge waiting": 1}
	if d := cmp.Diff(want, count); d != "" || series > room || leftOut != 32+1 {
		t.Errorf("%d series, %d left out; -want +got:\n%s", series, leftOut, d)
	}
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	again, _ := bound(all, room)
	for _, l := range again {
		with[l.of]--
	}
	for r, n := range with {
		if n != 0 {
			t.Errorf("another order shows %d lines less of %s", n, r.pod.Cgroup)
		}
	}
	if in, leftOut := bound(nil, room); len(in) != 0 || leftOut != 0 {
		t.Error(in, leftOut)
	}
}

// TestBoundDisks verifies that the series of disks count as those of pods do: once for the node, and a tenant with a disk for each of its
// pods does not displace the pods of others.
func TestBoundDisks(t *testing.T) {
	k := fakenode.NewKernel(t)
	var all []Pod
	node := ""
	for i := range 600 {
		p := Pod{Namespace: "many", Name: fmt.Sprint("p", i), Cgroup: fmt.Sprint("many", i)}
		disk := fmt.Sprint("9:", i)
		if i%4 == 0 {
			p.Namespace, disk = "one-disk", "8:0"
		}
		line := disk + " rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0"
		put(t, k, p.Cgroup, line)
		node += line + "\n"
		all = append(all, p)
	}
	k.Replace(".", "io.stat", node)
	got := gather(t, New(func() []Pod { return all }, nameOf, k.Open(t, t.Context().Done()), nil))
	ofNamespace := map[string]int{}
	for name := range got {
		for _, of := range []string{"pod_io_waiting_seconds_total one-disk ", "pod_operations_total vda one-disk ", "pod_io_waiting_seconds_total many "} {
			if strings.HasPrefix(name, of) {
				ofNamespace[of]++
			}
		}
	}
	if len(got) < maxSeries-8 || len(got) > maxSeries+1 || ofNamespace["pod_operations_total vda one-disk "] != 150 || len(ofNamespace) != 3 {
		t.Errorf("%d series; %v", len(got), ofNamespace)
	}
}

// TestManyPods verifies that there is room for all of 250 pods: with two limits on the disk that they use, and if a half of them has no
// limits and uses two disks.
func TestManyPods(t *testing.T) {
	for _, half := range []bool{false, true} {
		k := fakenode.NewKernel(t)
		var all []Pod
		for i := range 250 {
			const used = " rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0"
			p := Pod{Namespace: "prod", Name: fmt.Sprint("p", i), Cgroup: fmt.Sprint("p", i)}
			if half && i%2 == 0 {
				put(t, k, p.Cgroup, "8:0"+used, "8:16"+used)
			} else {
				put(t, k, p.Cgroup, "8:0"+used)
				p.Limits = []blkio.Value{limit(vda, blkio.Rbps, 1), limit(vda, blkio.Wbps, 1)}
				p.Parts = []Part{{p.Cgroup, p.Limits}}
			}
			all = append(all, p)
		}
		got := gather(t, New(func() []Pod { return all }, nameOf, k.Open(t, t.Context().Done()), nil))
		waiting := 0
		for name := range got {
			if strings.HasPrefix(name, "pod_io_waiting_seconds_total") {
				waiting++
			}
		}
		if len(got) > maxSeries || waiting != 250 || got["pods_left_out"] != 0 {
			t.Errorf("half without limits %t: %d series, %d pods, %v left out", half, len(got), waiting, got["pods_left_out"])
		}
	}
}
