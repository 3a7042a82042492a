package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// kernel is a node where a write to io.max changes one disk, as in cgroupfs. kernel notes each write,
// and whether the cgroup's record had the written value by then.
type kernel struct {
	*node
	writes []string
	fails  map[string]error // by write
}

func newKernel(t *testing.T, cgroups ...string) *kernel {
	t.Helper()
	k := &kernel{node: newNode(t, cgroups...), fails: map[string]error{}}
	tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: k.act})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	k.Cgroups = tree
	return k
}

func (k *kernel) act(name, line string) error {
	write := name + " " + line
	cgroup := filepath.Dir(name)
	kind := record.KindContainer
	if cgroup == pod {
		kind = record.KindPod
	}
	if r, err := record.Read(k.Cgroups.Cgroup(cgroup), kind); err == nil && r != nil && slices.Contains(texts(r.Settings.Lines()...), line) {
		k.writes = append(k.writes, write+", on record")
	} else {
		k.writes = append(k.writes, write)
	}
	if err := k.fails[write]; err != nil {
		return err
	}
	if filepath.Base(name) == blkio.IOWeight {
		k.write(name, line+"\n")
		return nil
	}
	dev, _, _ := strings.Cut(line, " ")
	lines := slices.DeleteFunc(strings.Split(k.ioMax(cgroup), "\n"), func(l string) bool { return l == "" || strings.HasPrefix(l, dev+" ") })
	if !strings.HasSuffix(line, "=max") {
		lines = append(lines, line)
	}
	k.write(name, strings.Join(lines, "\n")+"\n")
	return nil
}

// both limits two disks to five bytes per second.
func both() policy.Settings { return policy.NewSettings(limit(sda, 5)[0], limit(sdb, 5)[0]) }

// planOfBoth limits the pod, and each container, on both disks.
func planOfBoth(containers ...string) plan.Plan {
	p := planOf(containers...)
	p.Pod.Want, p.Pod.Record.Settings = both(), both()
	for i := range p.Containers {
		p.Containers[i].Want, p.Containers[i].Record.Settings = both(), both()
	}
	return p
}

// TestApplyOrder verifies that the pod is raised before its containers and lowered after them, so that none has
// less than it was granted. A lower value is on record before it is in force.
func TestApplyOrder(t *testing.T) {
	k := newKernel(t, pod, a, b)
	for _, cg := range []string{pod, a, b} {
		k.write(cg+"/io.max", "8:0 wbps=4\n")
	}
	if err := record.Write(k.Cgroups.Cgroup(pod), &record.Record{Kind: record.KindPod, Settings: limit(sda, 4)}); err != nil {
		t.Fatal(err)
	}
	targets := NewTargets(planOfBoth(a, b), &Written{})
	k.apply(targets, "")
	want := []string{
		pod + "/io.max 8:0 wbps=5",
		a + "/io.max 8:0 wbps=5", a + "/io.max 8:16 wbps=5, on record",
		b + "/io.max 8:0 wbps=5", b + "/io.max 8:16 wbps=5, on record",
		pod + "/io.max 8:16 wbps=5, on record",
	}
	if d := cmp.Diff(want, k.writes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	k.writes = nil
	if got := k.apply(targets, ""); k.writes != nil || len(got) != 3 {
		t.Errorf("written again: %q", k.writes)
	}
	if !k.IsUnchanged(targets, make([]byte, 0, 512)) {
		t.Error("all is in force, and it counts as changed")
	}
}

// TestApplyLift verifies that a limit is on record until it is lifted.
func TestApplyLift(t *testing.T) {
	k := newKernel(t, pod)
	k.apply(NewTargets(planOfBoth(), &Written{}), "")
	k.writes = nil
	p := planOf()
	k.apply(NewTargets(p, &Written{}), "")
	if d := cmp.Diff([]string{pod + "/io.max 8:16 wbps=max"}, k.writes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := texts(k.recordOf(pod, record.KindPod).Settings.Lines()...); !slices.Equal(got, []string{"8:0 wbps=5"}) {
		t.Errorf("record %q", got)
	}
}

// TestApplyFails verifies that a failed write is an error of the result and of the record. The other lines are
// written, and the record has all that may be in force. The next pass writes the rest.
func TestApplyFails(t *testing.T) {
	const writeError = "write io.max %q: input/output error (cgroup pods/u1)"
	for _, tt := range []struct {
		name       string
		before     string // io.max
		recorded   policy.Settings
		want       policy.Settings
		fails      string // a line
		writes     []string
		record     []string
		nextWrites []string
	}{
		{
			"to raise", "8:0 wbps=4\n", limit(sda, 4), both(), "8:0 wbps=5",
			[]string{"8:0 wbps=5", "8:16 wbps=5, on record"},
			[]string{"8:0 wbps=5", "8:16 wbps=5"},
			[]string{"8:0 wbps=5, on record"},
		},
		{
			"to lower", "", nil, both(), "8:0 wbps=5",
			[]string{"8:0 wbps=5, on record", "8:16 wbps=5, on record"},
			[]string{"8:0 wbps=5", "8:16 wbps=5"},
			[]string{"8:0 wbps=5, on record"},
		},
		{
			"to lift", "8:0 wbps=7\n", limit(sda, 7), limit(sdb, 5), "8:0 wbps=max",
			[]string{"8:0 wbps=max", "8:16 wbps=5, on record"},
			[]string{"8:0 wbps=7", "8:16 wbps=5"},
			[]string{"8:0 wbps=max"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, pod)
			k.write(pod+"/io.max", tt.before)
			if tt.recorded != nil {
				if err := record.Write(k.Cgroups.Cgroup(pod), &record.Record{Kind: record.KindPod, Settings: tt.recorded}); err != nil {
					t.Fatal(err)
				}
			}
			target := planOf().Pod
			target.Want, target.Record.Settings = tt.want, tt.want
			targets := NewTargets(plan.Plan{Pod: target}, &Written{})
			k.fails[pod+"/io.max "+tt.fails] = syscall.EIO
			text := strings.Replace(writeError, "%q", `"`+tt.fails+`"`, 1)
			if got := k.apply(targets, ""); !slices.Equal(got, []string{pod + " true, " + text}) {
				t.Errorf("result %q, want the error %q", got, text)
			}
			k.check(t, tt.writes, tt.record, text)
			if k.IsUnchanged(targets, make([]byte, 0, 512)) {
				t.Error("the targets are unchanged after a failed write, so it is not tried again")
			}
			k.fails, k.writes = nil, nil
			k.apply(targets, "")
			k.check(t, tt.nextWrites, texts(tt.want.Lines()...), "")
		})
	}
}

// check compares the writes to the pod's io.max, and its record.
func (k *kernel) check(t *testing.T, writes, recorded []string, recordedError string) {
	t.Helper()
	var got []string
	for _, w := range k.writes {
		got = append(got, strings.TrimPrefix(w, pod+"/io.max "))
	}
	if d := cmp.Diff(writes, got); d != "" {
		t.Errorf("writes, -want +got:\n%s", d)
	}
	r := k.recordOf(pod, record.KindPod)
	if d := cmp.Diff(recorded, texts(r.Settings.Lines()...)); d != "" || r.Error != recordedError {
		t.Errorf("record with the error %q, want %q; -want +got:\n%s", r.Error, recordedError, d)
	}
}

// TestApplyRemovedDisk verifies that Apply ignores a limit that the kernel rejects because its disk was removed.
// Each pass tries to write it again, and it is in force once the disk has returned. If the disk was not removed,
// the rejected limit is an error.
func TestApplyRemovedDisk(t *testing.T) {
	for _, isRemoved := range []bool{true, false} {
		k := newKernel(t, pod)
		k.IsRemoved = func(d blkio.Dev) bool { return isRemoved && d == sdb }
		k.fails[pod+"/io.max 8:16 wbps=5"] = syscall.ENODEV
		targets := NewTargets(planOfBoth(), &Written{})
		for range 2 {
			got := k.apply(targets, "")
			if failed := strings.Contains(got[0], "8:16"); failed == isRemoved || k.ioMax(pod) != "8:0 wbps=5" || k.IsUnchanged(targets, make([]byte, 0, 512)) {
				t.Errorf("disk removed %t: result %q, io.max %q", isRemoved, got, k.ioMax(pod))
			}
		}
		k.fails = nil
		for range 2 {
			k.apply(targets, "")
		}
		if k.ioMax(pod) != "8:0 wbps=5\n8:16 wbps=5" || !k.IsUnchanged(targets, make([]byte, 0, 512)) {
			t.Errorf("disk removed %t, then returned: io.max is %q, want both limits", isRemoved, k.ioMax(pod))
		}
	}
}

// TestApplyEnded verifies that a write succeeds if the cgroup of the container was removed before it. Apply then writes
// no record for the container, and the next full pass removes an earlier one.
func TestApplyEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		before, only string
		records      int
	}{
		"as it is raised": {"8:0 wbps=4\n", "id-a", 0}, "as it is lowered": {"", "id-a", 1}, "in a full pass": {"", "", 0},
	} {
		k := newKernel(t, pod, a)
		k.write(a+"/io.max", tt.before)
		tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: func(name, line string) error {
			if filepath.Dir(name) != a {
				return k.act(name, line)
			}
			if err := os.RemoveAll(filepath.Join(k.dir, a)); err != nil {
				t.Error(err)
			}
			return syscall.ENOENT
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		k.Cgroups = tree
		want := []string{a + " true, gone", pod + " true 8:0 wbps=5"}
		if d := cmp.Diff(want, k.apply(NewTargets(planOf(a), &Written{}), tt.only)); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
		if left, err := k.Cgroups.Cgroup(pod).ListAbove(record.Xattr); err != nil || len(left) != tt.records {
			t.Errorf("%s: records of containers: %v, %v", name, left, err)
		}
	}
}

// planOfWeight limits the pod on one disk, and gives it a weight.
func planOfWeight() plan.Plan {
	p := planOf()
	p.Pod.Want = policy.NewSettings(limit(sda, 5)[0], policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: 500}})
	p.Pod.Record.Settings = p.Pod.Want
	return p
}

// TestApplyFiles verifies that a pass over values of both files that are in force writes nothing. A pass over a
// pod that is known in part is needed again, since more may be known then.
func TestApplyFiles(t *testing.T) {
	k := newKernel(t, pod)
	k.write(pod+"/io.weight", "default 100\n")
	for _, partial := range []bool{false, true} {
		p := planOfWeight()
		p.Pod.Partial = partial
		targets := NewTargets(p, &Written{})
		k.apply(targets, "")
		k.writes = nil
		k.apply(targets, "")
		if k.writes != nil || k.ioMax(pod) != "8:0 wbps=5" {
			t.Errorf("partial %t: writes %q, io.max %q", partial, k.writes, k.ioMax(pod))
		}
		if got := k.IsUnchanged(targets, make([]byte, 0, 512)); got == partial {
			t.Errorf("partial %t: unchanged %t", partial, got)
		}
	}
}

// TestApplyUnread verifies that nothing is written to a file that cannot be read, whose values are unknown.
// That is an error also of a pod without processes.
func TestApplyUnread(t *testing.T) {
	for file, want := range map[string][]string{blkio.IOMax: {"io.weight default 500, on record"}, blkio.IOWeight: {"io.max 8:0 wbps=5, on record"}} {
		k := newKernel(t, pod)
		k.write(pod+"/cgroup.events", "populated 0\n")
		k.write(pod+"/io.weight", "default 100\n")
		k.write(pod+"/"+file, "8:0 wbps=x\n")
		got := k.apply(NewTargets(planOfWeight(), &Written{}), "")
		for i := range want {
			want[i] = pod + "/" + want[i]
		}
		if d := cmp.Diff(want, k.writes); d != "" || !strings.Contains(got[0], "parse "+file) {
			t.Errorf("%s: result %q; writes, -want +got:\n%s", file, got, d)
		}
	}
}

// TestApplyBelow verifies that the value of the OCI spec that crun writes to a child of the container's cgroup
// is replaced there. Other values stay, and an error is one of the container.
func TestApplyBelow(t *testing.T) {
	const crun, own = a + "/container", a + "/own"
	k := newKernel(t, pod, a, crun, own)
	k.write(crun+"/io.max", "8:0 wbps=7\n")
	k.write(own+"/io.max", "8:0 wbps=6\n")
	p := planOf(a)
	p.Containers[0].Stale = []blkio.Replacement{{Address: limit(sda, 5)[0].Address, From: 7, To: 5}}
	k.fails[crun+"/io.max 8:0 wbps=5"] = syscall.EIO
	targets := NewTargets(p, &Written{})
	if got := k.apply(targets, ""); !strings.Contains(got[0], `write io.max "8:0 wbps=5": input/output error (cgroup `+crun) || k.ioMax(a) != "8:0 wbps=5" {
		t.Errorf("%q, io.max %q", got, k.ioMax(a))
	}
	k.fails = nil
	k.apply(targets, "")
	if k.ioMax(crun) != "8:0 wbps=5" || k.ioMax(own) != "8:0 wbps=6" || k.recordOf(a, record.KindContainer).Error != "" {
		t.Errorf("crun's %q, the container's own %q, record %+v", k.ioMax(crun), k.ioMax(own), k.recordOf(a, record.KindContainer))
	}
}

// TestSweepOwn verifies that a record on a container's own directory counts no more, and goes with a full pass.
func TestSweepOwn(t *testing.T) {
	n := newNode(t, pod, a)
	own := n.Cgroups.Cgroup(a)
	if err := own.WriteXattr(record.Xattr, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, only := range []string{"id-a", ""} {
		n.apply(NewTargets(planOf(a), &Written{}), only)
		if data, err := own.ReadXattr(record.Xattr); err != nil || (data == nil) != (only == "") {
			t.Errorf("after a pass over %q: %q, %v", only, data, err)
		}
	}
}

// TestClearBelow verifies that clear also removes the limits of a container from the child that crun makes of
// its cgroup, and no others. A dry run does not.
func TestClearBelow(t *testing.T) {
	const crun = a + "/container"
	for _, tt := range []struct {
		name   string
		kind   string
		dryRun bool
		below  string // io.max of the child
		want   string
	}{
		{"the container's limit", record.KindContainer, false, "8:0 wbps=5\n", ""},
		{"another one", record.KindContainer, false, "8:0 wbps=6\n", "8:0 wbps=6"},
		{"of another disk", record.KindContainer, false, "8:32 wbps=5\n", "8:32 wbps=5"},
		{"a dry run", record.KindContainer, true, "8:0 wbps=5\n", "8:0 wbps=5"},
		{"of a pod", record.KindPod, false, "8:0 wbps=5\n", "8:0 wbps=5"},
	} {
		k := newKernel(t, pod, a, crun)
		k.write(crun+"/io.max", tt.below)
		r := record.Record{Kind: tt.kind, Settings: both()}
		c := Clearer{DryRun: tt.dryRun}
		steps, err := c.Clear(k.Cgroups.Cgroup(a), &r)
		if d := cmp.Diff([]string{"mark as cleared", `write io.max "8:0 wbps=max"`, `write io.max "8:16 wbps=max"`}, steps); d != "" || err != nil {
			t.Errorf("%s: %v; -want +got:\n%s", tt.name, err, d)
		}
		if got := k.ioMax(crun); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestClearRemovedDisk verifies that Clear ignores the limits of a removed disk, which the kernel has removed as well. It
// returns neither an error nor a step for them.
func TestClearRemovedDisk(t *testing.T) {
	k := newKernel(t, pod)
	k.fails[pod+"/io.max 8:16 wbps=max"] = syscall.ENODEV
	var c Clearer
	steps, err := c.Clear(k.Cgroups.Cgroup(pod), &record.Record{Kind: record.KindPod, Settings: both()})
	if d := cmp.Diff([]string{"mark as cleared", `write io.max "8:0 wbps=max"`}, steps); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
	k.fails[pod+"/io.max 8:16 wbps=max"] = syscall.EIO
	if _, err := c.Clear(k.Cgroups.Cgroup(pod), &record.Record{Kind: record.KindPod, Settings: both()}); !errors.Is(err, syscall.EIO) {
		t.Errorf("of a disk that is there: %v", err)
	}
}
