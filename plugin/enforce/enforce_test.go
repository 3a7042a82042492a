package enforce

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

const pod, a, b = "pods/u1", "pods/u1/a", "pods/u1/b"

var sda, sdb = blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}

func limit(dev blkio.Dev, amount blkio.Amount) policy.Settings {
	return policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: dev}, Amount: amount}}}
}

// node is a tree of files in place of cgroups.
type node struct {
	*Enforcer
	t   *testing.T
	dir string
}

func newNode(t *testing.T, cgroups ...string) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	n.write("cgroup.controllers", "cpu io memory\n")
	for _, cg := range cgroups {
		if err := os.MkdirAll(filepath.Join(n.dir, cg), 0o755); err != nil {
			t.Fatal(err)
		}
		n.write(cg+"/io.max", "")
		n.write(cg+"/cgroup.events", "populated 1\n")
	}
	h, err := cgroupfs.OpenTree(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	n.Enforcer = &Enforcer{Cgroups: h, IsRemoved: func(blkio.Dev) bool { return false }}
	return n
}

func (n *node) write(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) ioMax(cgroup string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, cgroup, "io.max"))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (n *node) recordOf(cgroup, kind string) *record.Record {
	n.t.Helper()
	r, err := record.Read(n.Cgroups.Cgroup(cgroup), kind)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// apply returns the results as text: a cgroup, whether it was compared, and the lines that were written.
func (n *node) apply(targets *Targets, only string) []string {
	n.t.Helper()
	var out []string
	n.Apply(targets, only, func(r *Result) {
		line := fmt.Sprintf("%s %t", r.Target.Cgroup, r.Compared)
		for _, l := range r.Written {
			line += " " + l.Text
		}
		switch {
		case errors.Is(r.Err, blkio.ErrGone):
			line += ", gone"
		case r.Err != nil:
			line += ", " + r.Err.Error()
		}
		out = append(out, line)
	})
	return out
}

// planOf limits the pod, and each container, to five bytes per second.
func planOf(containers ...string) plan.Plan {
	target := func(id, cgroup, kind string) plan.Target {
		want := limit(sda, 5)
		return plan.Target{Container: id, Cgroup: cgroup, Want: want, Room: 4096, Record: record.Record{Kind: kind, ContainerID: id, Settings: want}}
	}
	out := plan.Plan{Pod: target("", pod, record.KindPod)}
	for _, cg := range containers {
		out.Containers = append(out.Containers, target("id-"+filepath.Base(cg), cg, record.KindContainer))
	}
	return out
}

// TestApply verifies that each cgroup has a result, that the pod's is the last one, and that the written lines
// are recorded.
func TestApply(t *testing.T) {
	const wrote = " 8:0 wbps=5"
	for _, tt := range []struct {
		name    string
		cgroups []string
		only    string
		want    []string
	}{
		{"all", []string{pod, a, b}, "", []string{a + " true" + wrote, b + " true" + wrote, pod + " true" + wrote}},
		{"one", []string{pod, a, b}, "id-b", []string{b + " true" + wrote, pod + " true" + wrote}},
		{"a container has gone", []string{pod, a}, "", []string{a + " true" + wrote, b + " false, gone", pod + " true" + wrote}},
		{"the pod has gone", nil, "", []string{a + " false, gone", b + " false, gone", pod + " false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, tt.cgroups...)
			if diff := cmp.Diff(tt.want, n.apply(NewTargets(planOf(a, b), &Written{}), tt.only)); diff != "" {
				t.Error(diff)
			}
			for _, cg := range tt.cgroups {
				kind := record.KindContainer
				if cg == pod {
					kind = record.KindPod
				}
				isMeant := tt.only == "" || cg != a
				if r := n.recordOf(cg, kind); (r != nil) != isMeant || (n.ioMax(cg) != "") != isMeant {
					t.Errorf("%s: %q, record %+v", cg, n.ioMax(cg), r)
				}
			}
		})
	}
}

// TestIsUnchanged verifies that IsUnchanged holds once a pass has found all values in place, until a file
// changes.
func TestIsUnchanged(t *testing.T) {
	n := newNode(t, pod, a)
	targets := NewTargets(planOf(a), &Written{})
	isUnchanged := func(want bool, when string) {
		t.Helper()
		if got := n.IsUnchanged(targets, make([]byte, 0, 512)); got != want {
			t.Errorf("%s: quiet %t", when, got)
		}
	}
	isUnchanged(false, "never looked at")
	n.apply(targets, "")
	isUnchanged(false, "just written")
	n.apply(targets, "")
	isUnchanged(true, "all in place")
	n.write(a+"/io.max", "")
	isUnchanged(false, "limit removed")
	if got := n.apply(targets, ""); got[0] != a+" true 8:0 wbps=5" {
		t.Errorf("not written again: %q", got)
	}
}

// TestCleared verifies that nothing is written to a cgroup that clear has marked.
func TestCleared(t *testing.T) {
	n := newNode(t, pod, a)
	if err := record.Write(n.Cgroups.Cgroup(a), &record.Record{Kind: record.KindContainer, Cleared: true}); err != nil {
		t.Fatal(err)
	}
	if got := n.apply(NewTargets(planOf(a), &Written{}), ""); got[0] != a+" false" || n.ioMax(a) != "" {
		t.Errorf("%q, io.max %q", got, n.ioMax(a))
	}
}

// TestUnreadableRecord verifies that an invalid record is replaced, and that the result reports it.
func TestUnreadableRecord(t *testing.T) {
	n := newNode(t, pod)
	if err := record.WriteRaw(n.Cgroups.Cgroup(pod), record.KindPod, []byte("{")); err != nil {
		t.Fatal(err)
	}
	n.Apply(NewTargets(planOf(), &Written{}), "", func(r *Result) {
		if !errors.Is(r.Unreadable, record.ErrParse) || r.Err != nil {
			t.Errorf("%v, %v", r.Unreadable, r.Err)
		}
	})
	if r := n.recordOf(pod, record.KindPod); len(r.Settings) != 1 {
		t.Errorf("record %+v", r)
	}
}

// TestUnreadRecordStays verifies that a record that cannot be read is not replaced.
func TestUnreadRecordStays(t *testing.T) {
	n := newNode(t, pod)
	want := record.Record{Kind: record.KindPod, Exits: []record.Exit{{Container: "gone", CgroupIDs: []uint64{7}}}}
	if err := record.Write(n.Cgroups.Cgroup(pod), &want); err != nil {
		t.Fatal(err)
	}
	c := change{
		Result: Result{Target: &plan.Target{}, Compared: true, Cgroup: n.Cgroups.Cgroup(pod)}, last: &seen{}, written: &Written{},
		found:  found{unread: errors.New("input/output error")},
		record: record.Record{Kind: record.KindPod, Settings: limit(sda, 1)},
	}
	if c.doLower(); !errors.Is(c.Err, c.found.unread) {
		t.Errorf("got %v", c.Err)
	}
	if r := n.recordOf(pod, record.KindPod); len(r.Exits) != 1 {
		t.Error("a record that could not be read is replaced")
	}
}

// TestFailedLiftIsOnRecord verifies that a value that could not be lifted stays in the record.
func TestFailedLiftIsOnRecord(t *testing.T) {
	n := newNode(t, pod)
	n.apply(NewTargets(planOf(), &Written{}), "")
	for _, observed := range []bool{false, true} {
		busy := errors.New("device or resource busy")
		c := change{
			Result: Result{Target: &plan.Target{Cgroup: pod, Room: 4096}, Compared: true, Cgroup: n.Cgroups.Cgroup(pod), Err: busy},
			last:   &seen{}, written: &Written{}, found: found{record: n.recordOf(pod, record.KindPod), known: n.recordOf(pod, record.KindPod)},
			record: record.Record{Kind: record.KindPod, Observed: observed},
		}
		if c.doLower(); c.Err.Error() != busy.Error() {
			t.Fatal(c.Err)
		}
		if r := n.recordOf(pod, record.KindPod); len(r.Settings) != 1 || r.Observed || r.Error != busy.Error() {
			t.Errorf("observed %v: record %+v", observed, r)
		}
	}
	targets := NewTargets(planOf(), &Written{})
	for range 2 {
		n.apply(targets, "")
	}
	if r := n.recordOf(pod, record.KindPod); len(r.Settings) != 1 || r.Error != "" {
		t.Errorf("record %+v", r)
	}
}

// TestLimitOfRemovedDisk verifies that Apply succeeds although a disk was removed. Each pass writes the limit of that
// disk again, so it is in force when the disk returns.
func TestLimitOfRemovedDisk(t *testing.T) {
	line := func(dev blkio.Dev) blkio.Line { return limit(dev, 2).Lines()[0] }
	refuses := func(l blkio.Line) error {
		if l.Dev == sda {
			return nil
		}
		return fmt.Errorf("write io.max: %w", blkio.ErrNoDevice)
	}
	gone := func(d blkio.Dev) bool { return d == sdb }
	present, err := writeLines([]blkio.Line{line(sda), line(sdb)}, refuses, gone)
	if err != nil || !slices.Equal(present, []blkio.Line{line(sda)}) {
		t.Errorf("written %v, %v", present, err)
	}
	if _, err = writeLines([]blkio.Line{line(blkio.Dev{Major: 9})}, refuses, gone); !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("a device that takes no limit: %v", err)
	}
	c := change{last: &seen{texts: []fileText{}}, hasRemoved: true}
	if c.remember(); c.last.texts != nil || c.last.idle {
		t.Error("a target whose disk was removed is remembered as unchanged")
	}
}

// TestMissing verifies that Controls reads which files the kernel does not have until there is a cgroup that shows it.
func TestMissing(t *testing.T) {
	empty := newNode(t)
	c := Controls{Cgroups: empty.Cgroups}
	if got := c.Missing(); got != nil {
		t.Errorf("without a cgroup %q are missing", got)
	}
	without := newNode(t, "kubepods")
	if err := os.Remove(filepath.Join(without.dir, "kubepods", blkio.IOMax)); err != nil {
		t.Fatal(err)
	}
	without.write("kubepods/cgroup.controllers", "io\n")
	c = Controls{Cgroups: without.Cgroups}
	if got := c.Missing(); !slices.Equal(got, []string{blkio.IOMax, blkio.IOWeight}) {
		t.Errorf("a cgroup has the io controller and no file: %q are missing", got)
	}
	without.write("kubepods/io.max", "")
	if got := c.Missing(); len(got) != 2 {
		t.Errorf("it is read again: %q", got)
	}
}
