package enforce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy"
)

// withoutRoom returns a kernel that stores no attributes.
func withoutRoom(t *testing.T, cgroups ...string) *kernel {
	t.Helper()
	k := newKernel(t, cgroups...)
	tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: k.act, WriteXattr: func(string, string) error { return unix.ENOSPC }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	k.Cgroups = tree
	return k
}

// planWith is planOf with other settings.
func planWith(want policy.Settings, containers ...string) plan.Plan {
	p := planOf(containers...)
	p.Pod.Want, p.Pod.Record.Settings = want, want
	for i := range p.Containers {
		p.Containers[i].Want, p.Containers[i].Record.Settings = want, want
	}
	return p
}

// TestLimitWithoutRecord verifies that the process knows its own values if no record of them could be stored: it lifts
// them, and takes none for the value of another program.
func TestLimitWithoutRecord(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(p *plan.Plan)
		want string // io.max afterwards
		err  bool   // the next plan has values without a record as well
	}{
		{name: "nothing is desired", next: func(*plan.Plan) {}},
		{name: "a higher value", next: func(p *plan.Plan) { *p = planWith(limit(sda, 9), a) }, want: "8:0 wbps=9", err: true},
		{name: "not all is known", next: func(p *plan.Plan) { p.Pod.Partial, p.Containers[0].Partial = true, true }, want: "8:0 wbps=5", err: true},
		{name: "all is observed", next: func(p *plan.Plan) {
			*p = planWith(limit(sda, 5), a)
			for _, target := range []*plan.Target{&p.Pod, &p.Containers[0]} {
				target.Want, target.Record.Observed = nil, true
			}
		}, err: true},
	} {
		k, w := withoutRoom(t, pod, a), &Written{}
		for _, got := range k.apply(NewTargets(planOf(a), w), "") {
			if !strings.Contains(got, unix.ENOSPC.Error()) {
				t.Errorf("%s: %s, which is no error about the record", tt.name, got)
			}
		}
		next := planWith(nil, a)
		tt.next(&next)
		targets := NewTargets(next, w)
		for _, got := range k.apply(targets, "") {
			if strings.Contains(got, unix.ENOSPC.Error()) != tt.err {
				t.Errorf("%s: %s", tt.name, got)
			}
		}
		if k.ioMax(pod) != tt.want || k.ioMax(a) != tt.want {
			t.Errorf("%s: the pod has %q, the container %q, want %q", tt.name, k.ioMax(pod), k.ioMax(a), tt.want)
		}
		if tt.err && k.IsUnchanged(targets, nil) {
			t.Errorf("%s: nothing is left to do without a record", tt.name)
		}
	}
}

// TestFailedLiftWithoutRecord verifies that the process knows a value until it was lifted.
func TestFailedLiftWithoutRecord(t *testing.T) {
	k, w := withoutRoom(t, pod), &Written{}
	k.apply(NewTargets(planOf(), w), "")
	k.fails[pod+"/io.max 8:0 wbps=max"] = unix.EIO
	for range 2 {
		if got := k.apply(NewTargets(planWith(nil), w), ""); !strings.Contains(got[0], unix.EIO.Error()) {
			t.Errorf("got %q", got)
		}
	}
	clear(k.fails)
	if k.apply(NewTargets(planWith(nil), w), ""); k.ioMax(pod) != "" || len(w.of) > 0 {
		t.Errorf("the pod has %q, and %v is known", k.ioMax(pod), w.of)
	}
}

// TestWrittenIsForgotten verifies that the process forgets what it wrote to a cgroup that was removed.
func TestWrittenIsForgotten(t *testing.T) {
	k, w := newKernel(t, pod, a), &Written{}
	k.apply(NewTargets(planOf(a), w), "")
	if len(w.of) != 2 || w.of[a].Settings[0].Value != (blkio.Value{Address: limit(sda, 5)[0].Address, Amount: 5}) {
		t.Errorf("known are %v", w.of)
	}
	if err := os.RemoveAll(filepath.Join(k.dir, a)); err != nil {
		t.Fatal(err)
	}
	if k.apply(NewTargets(planOf(), w), ""); len(w.of) != 1 {
		t.Errorf("known are %v", w.of)
	}
}
