package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// backstop is limit for the sum of the limits of a pod's containers.
func backstop(dev blkio.Dev, amount blkio.Amount) policy.Settings {
	out := limit(dev, amount)
	out[0].Source.Kind = policy.FromBackstop
	return out
}

// texts returns the text of each line.
func texts(lines ...blkio.Line) []string {
	var out []string
	for _, l := range lines {
		out = append(out, l.Text)
	}
	return out
}

// inspectTest is a pod's cgroup, and the writes that it needs.
type inspectTest struct {
	name     string
	max      string // the text of io.max
	recorded record.Record
	target   plan.Target
	raise    []string
	lower    []string
	record   []string // lines of the new record
}

func (tt *inspectTest) run(t *testing.T) {
	n := newNode(t, pod)
	n.write(pod+"/io.max", tt.max)
	tt.recorded.Kind, tt.target.Record.Kind = record.KindPod, record.KindPod
	if err := record.Write(n.Cgroups.Cgroup(pod), &tt.recorded); err != nil {
		t.Fatal(err)
	}
	tt.target.Cgroup, tt.target.Room, tt.target.Record.Settings = pod, 4096, tt.target.Want
	c := n.inspect(&tt.target, &seen{}, &Written{})
	if !c.Compared || c.Err != nil {
		t.Errorf("compared %v, %v", c.Compared, c.Err)
	}
	for what, diff := range map[string]string{
		"raised":   cmp.Diff(tt.raise, texts(c.raise...)),
		"lowered":  cmp.Diff(tt.lower, texts(c.lower...)),
		"recorded": cmp.Diff(tt.record, texts(c.record.Settings.Lines()...)),
	} {
		if diff != "" {
			t.Errorf("%s, -want +got:\n%s", what, diff)
		}
	}
}

// TestInspect verifies that the record, and the values that the runtime writes from the OCI spec, decide which
// values of a cgroup are removed.
func TestInspect(t *testing.T) {
	for _, tt := range []inspectTest{
		{name: "another program's limit stays", max: "8:0 wbps=7"},
		{name: "a new limit", target: plan.Target{Want: limit(sda, 5)}, lower: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"}},
		{
			name: "raised", max: "8:0 wbps=4", recorded: record.Record{Settings: limit(sda, 4)}, target: plan.Target{Want: limit(sda, 5)},
			raise: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"},
		},
		{name: "another program's lower limit stays", max: "8:0 wbps=4", target: plan.Target{Want: limit(sda, 5)}},
		{
			name: "another program's higher limit", max: "8:0 wbps=7", target: plan.Target{Want: limit(sda, 5)},
			lower: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"},
		},
		{
			name: "another program's limit in place of one in force", max: "8:0 wbps=4", recorded: record.Record{Settings: limit(sda, 5)}, target: plan.Target{Want: limit(sda, 5)},
			raise: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"},
		},
		{
			name: "another program's limit on another disk stays", max: "8:0 wbps=5\n8:16 wbps=4", target: plan.Target{Want: limit(sda, 5)},
			record: []string{"8:0 wbps=5"},
		},
		{
			name: "a container's lower limit", max: "8:0 wbps=4", target: plan.Target{Container: "a", Want: limit(sda, 5)},
			raise: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"},
		},
		{name: "no longer wanted", max: "8:0 wbps=7", recorded: record.Record{Settings: limit(sda, 7)}, raise: []string{"8:0 wbps=max"}},
		{name: "observed, so never written", max: "8:0 wbps=7", recorded: record.Record{Settings: limit(sda, 7), Observed: true}},
		{
			name: "partly known: a limit stays", max: "8:0 wbps=7", recorded: record.Record{Settings: limit(sda, 7)},
			target: plan.Target{Partial: true, Want: limit(sdb, 5)},
			lower:  []string{"8:16 wbps=5"}, record: []string{"8:0 wbps=7", "8:16 wbps=5"},
		},
		{
			name: "partly known: written again", recorded: record.Record{Settings: limit(sda, 7)},
			target: plan.Target{Partial: true}, lower: []string{"8:0 wbps=7"}, record: []string{"8:0 wbps=7"},
		},
		{
			name: "partly known: the wanted value wins", max: "8:0 wbps=7", recorded: record.Record{Settings: limit(sda, 7)},
			target: plan.Target{Partial: true, Want: limit(sda, 5)}, lower: []string{"8:0 wbps=5"}, record: []string{"8:0 wbps=5"},
		},
		{
			name: "partly known: the backstop does not stay", max: "8:0 wbps=7", recorded: record.Record{Settings: backstop(sda, 7)},
			target: plan.Target{Partial: true}, raise: []string{"8:0 wbps=max"},
		},
		{
			name: "all containers ended: the backstop stays", max: "8:0 wbps=7", recorded: record.Record{Settings: backstop(sda, 7)},
			target: plan.Target{Ended: true}, record: []string{"8:0 wbps=7"},
		},
		{
			name: "partly known: observed settings do not stay", recorded: record.Record{Settings: limit(sda, 7), Observed: true},
			target: plan.Target{Partial: true},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestInspectSpec covers the values of the OCI spec that are not wanted any more.
func TestInspectSpec(t *testing.T) {
	stale := []blkio.Replacement{{Address: limit(sda, 1)[0].Address, From: 7, To: blkio.Max}}
	for _, tt := range []inspectTest{
		{name: "the value that this program wrote", max: "8:0 wbps=7", target: plan.Target{Stale: stale}, raise: []string{"8:0 wbps=max"}},
		{name: "changed since by another program", max: "8:0 wbps=8", target: plan.Target{Stale: stale}},
		{name: "changed since, and on record", max: "8:0 wbps=8", recorded: record.Record{Settings: limit(sda, 7)}, target: plan.Target{Stale: stale}, raise: []string{"8:0 wbps=max"}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestEmptyPodWithoutController verifies the error for a missing io controller, which systemd takes from a
// slice without processes. An empty pod gets no error; a container, and a pod with processes, get one.
func TestEmptyPodWithoutController(t *testing.T) {
	for _, tt := range []struct {
		name, events, container string
		fails                   bool
	}{
		{name: "an empty pod", events: "populated 0\n"},
		{name: "a pod with processes", events: "populated 1\n", fails: true},
		{name: "a container", events: "populated 0\n", container: "id-a", fails: true},
	} {
		n := newNode(t, pod, a)
		target := planOf(a).Pod
		target.Container = tt.container
		n.write(pod+"/cgroup.events", tt.events)
		if err := os.Remove(filepath.Join(n.dir, pod, blkio.IOMax)); err != nil {
			t.Fatal(err)
		}
		c := n.inspect(&target, &seen{}, &Written{})
		if c.Compared != tt.fails || errors.Is(c.Err, blkio.ErrNotSupported) != tt.fails {
			t.Errorf("%s: compared %v, %v", tt.name, c.Compared, c.Err)
		}
	}
}

// TestErrorOfOneFile verifies that an error of one file does not keep the settings of the other file from being
// written, and that the record has the error.
func TestErrorOfOneFile(t *testing.T) {
	n := newNode(t, pod)
	n.write(pod+"/io.weight", "default heavy\n")
	target := planOf().Pod
	weight := policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: 500}}
	target.Want = policy.NewSettings(target.Want[0], weight)
	target.Record.Settings = target.Want
	got := n.apply(NewTargets(plan.Plan{Pod: target}, &Written{}), "")
	if len(got) != 1 || !strings.Contains(got[0], "heavy") || n.ioMax(pod) != "8:0 wbps=5" {
		t.Errorf("%q, io.max %q", got, n.ioMax(pod))
	}
	if r := n.recordOf(pod, record.KindPod); !strings.Contains(r.Error, "heavy") {
		t.Errorf("record: %+v", r)
	}
}

// TestRecordTooLarge verifies that the limits are in force without a record, which is an error.
func TestRecordTooLarge(t *testing.T) {
	n := newNode(t, pod)
	target := planOf().Pod
	target.Record.Error = strings.Repeat("x", record.MaxSize+1)
	got := n.apply(NewTargets(plan.Plan{Pod: target}, &Written{}), "")
	if len(got) != 1 || !strings.Contains(got[0], record.ErrTooLarge.Error()) || n.ioMax(pod) != "8:0 wbps=5" {
		t.Errorf("%.200q, io.max %q", got, n.ioMax(pod))
	}
	if r := n.recordOf(pod, record.KindPod); r != nil {
		t.Errorf("record: %+v", r)
	}
}

// TestLastLimit verifies that the record is removed with the last limit. After that, only a removal of the
// container's cgroup needs another comparison.
func TestLastLimit(t *testing.T) {
	n := newNode(t, pod, a)
	n.apply(NewTargets(planOf(a), &Written{}), "")
	nothing := planOf(a)
	for _, target := range []*plan.Target{&nothing.Pod, &nothing.Containers[0]} {
		target.Want, target.Record.Settings = nil, nil
	}
	targets := NewTargets(nothing, &Written{})
	n.apply(targets, "")
	if n.ioMax(a) != "8:0 wbps=max" || n.recordOf(a, record.KindContainer) != nil || n.recordOf(pod, record.KindPod) != nil {
		t.Errorf("io.max %q", n.ioMax(a))
	}
	n.write(a+"/io.max", "")
	n.write(pod+"/io.max", "")
	n.apply(targets, "")
	if !n.IsUnchanged(targets, nil) {
		t.Error("a target without settings is not unchanged after a pass")
	}
	if err := os.RemoveAll(filepath.Join(n.dir, a)); err != nil {
		t.Fatal(err)
	}
	if n.IsUnchanged(targets, nil) {
		t.Error("targets are unchanged, although the container's cgroup was removed")
	}
}

// TestNoCgroup verifies that a target without a cgroup is not compared.
func TestNoCgroup(t *testing.T) {
	n := newNode(t)
	targets := NewTargets(plan.Plan{Pod: plan.Target{Want: limit(sda, 5)}}, &Written{})
	if diff := cmp.Diff([]string{" false"}, n.apply(targets, "")); diff != "" {
		t.Error(diff)
	}
	if !n.IsUnchanged(targets, nil) {
		t.Error("a target without a cgroup is not unchanged")
	}
}

// TestSweep verifies that the record of a container is removed after its cgroup, and that those of others stay.
func TestSweep(t *testing.T) {
	n := newNode(t, pod, a, b)
	n.apply(NewTargets(planOf(a, b), &Written{}), "")
	if err := os.RemoveAll(filepath.Join(n.dir, a)); err != nil {
		t.Fatal(err)
	}
	// recorded returns how many containers the pod's cgroup has records of.
	recorded := func() int {
		t.Helper()
		of, err := n.Cgroups.Cgroup(pod).ListAbove(record.Xattr)
		if err != nil {
			t.Fatal(err)
		}
		return len(of)
	}
	n.apply(NewTargets(planOf(b), &Written{}), "id-b")
	if got := recorded(); got != 2 {
		t.Errorf("%d records after a pass over one container, want 2", got)
	}
	n.apply(NewTargets(planOf(b), &Written{}), "")
	if got := recorded(); got != 1 || n.recordOf(b, record.KindContainer) == nil {
		t.Errorf("%d records after a full pass, want that of the other container", got)
	}
}

// TestRefresh verifies that weights count as working if a disk has io.cost enabled, or if that is unknown.
func TestRefresh(t *testing.T) {
	n := newNode(t)
	w := Controls{Cgroups: n.Cgroups}
	for _, tt := range []struct {
		name, qos      string
		changed, works bool
	}{
		{"no file of io.cost", "", true, true},
		{"disabled", "8:0 enable=0 ctrl=auto\n", true, false},
		{"still disabled", "8:0 enable=0 ctrl=auto\n8:16 enable=0\n", false, false},
		{"enabled on a disk", "8:0 enable=0 ctrl=auto\n8:16 enable=1\n", true, true},
	} {
		if tt.qos != "" {
			n.write("io.cost.qos", tt.qos)
		}
		if changed := w.Refresh(); changed != tt.changed || w.Work() != tt.works || w.Effect().Work() != tt.works {
			t.Errorf("%s: changed %v, works %v", tt.name, changed, w.Work())
		}
	}
}

// TestClearFailsToMark verifies that no limit is removed from a cgroup that a running plugin would restore.
func TestClearFailsToMark(t *testing.T) {
	n := newNode(t)
	r := record.Record{Kind: record.KindPod, Settings: limit(sda, 1)}
	var c Clearer
	if steps, err := c.Clear(n.Cgroups.Cgroup(pod), &r); len(steps) > 0 || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("clear: %q, %v", steps, err)
	}
	r.Cleared = true
	if steps, err := c.Undo(n.Cgroups.Cgroup(pod), &r); len(steps) > 0 || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("undo: %q, %v", steps, err)
	}
}
