package burst

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// kept is a Keeper of pods without I/O.
type kept struct {
	*Keeper
	demand   Demand
	now      time.Duration
	raised   map[string]bool // pods with a raised limit
	calls    int             // of Raise
	err      error           // of Raise
	failures int             // of the next calls of Raise
	mu       sync.Mutex      // guards those of Raise
	hook     *test.Hook
}

func newKept(t *testing.T, limits ...Member) *kept {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range limits {
		limits[i].Pod = "pod " + limits[i].Cgroup
		if err := os.MkdirAll(filepath.Join(dir, limits[i].Cgroup), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, limits[i].Cgroup, "io.stat"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroupfs.OpenFake(dir, cgroupfs.Fake{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	log, hook := test.NewNullLogger()
	k := &kept{demand: Demand{Limits: limits}, now: time.Hour, raised: map[string]bool{}, hook: hook}
	k.Keeper = New(Config{
		Log: log, Cgroups: tree, File: &File{Path: filepath.Join(t.TempDir(), "state", "bursts.json"), Boot: "b", Now: func() time.Duration { return k.now }},
		Room: func() blkio.Limits { return blkio.Limits{blkio.Wbps: blkio.Max} }, Demand: func() Demand { return k.demand }, Raise: k.raise,
	})
	return k
}

func (k *kept) raise(_ context.Context, pod string, isRaised func(string, blkio.Address) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls++; k.failures > 0 {
		k.failures--
		return errors.New("another goroutine is writing")
	}
	if k.err == nil {
		k.raised[pod] = isRaised(pod[len("pod "):], sda)
	}
	return k.err
}

func (k *kept) steps(n int) {
	for range n {
		k.now += time.Second
		k.step(context.Background())
	}
}

// TestKeeper verifies that limits are raised with credits that are saved, only of pods with bursts, and lowered at the end.
func TestKeeper(t *testing.T) {
	k := newKept(t, pod("web", "c1"), pod("db", "c2"))
	k.demand.Unlisted = true
	if k.steps(2); k.book != nil {
		t.Error("a step before the runtime has listed what runs")
	}
	k.demand.Unlisted = false
	if k.steps(4); k.calls != 0 {
		t.Errorf("%d writes without credits", k.calls)
	}
	if k.steps(2); !k.raised["pod c1"] || !k.raised["pod c2"] || len(k.Report()) != 2 || !k.Report()[0].Raised {
		t.Errorf("raised %v, report %+v", k.raised, k.Report())
	}
	saved, err := k.cfg.File.Read()
	if err != nil || len(saved.last) != 2 || !saved.last[0].Raised {
		t.Errorf("%v: saved %+v", err, saved)
	}
	const metrics = `# HELP nri_blkio_burst_limits Limits of running containers and pods that have a burst, by whether it is in force.
# TYPE nri_blkio_burst_limits gauge
nri_blkio_burst_limits{state="lowered"} 0
nri_blkio_burst_limits{state="no_credits"} 0
nri_blkio_burst_limits{state="raised"} 2
`
	if err := testutil.CollectAndCompare(k.Keeper, strings.NewReader(metrics)); err != nil {
		t.Error(err)
	}
	k.failures = 2
	if k.end(); k.raised["pod c1"] || k.raised["pod c2"] {
		t.Errorf("raised %v after the end", k.raised)
	}
	if saved, err = k.cfg.File.Read(); err != nil || saved.last[0].Raised || saved.credits[saved.last[0].Account] == 0 {
		t.Errorf("%v: saved %+v after the end", err, saved)
	}
}

// TestKeeperGone verifies that a pod without a burst any more is lowered, and that a failure is tried again.
func TestKeeperGone(t *testing.T) {
	k := newKept(t, pod("web", "c1"))
	k.steps(6)
	k.demand.Limits, k.err = nil, errors.New("busy")
	if k.steps(3); !k.raised["pod c1"] {
		t.Error("lowered, although that failed")
	}
	k.err = nil
	if k.steps(1); k.raised["pod c1"] {
		t.Error("not lowered")
	}
	calls := k.calls
	if k.steps(5); k.calls != calls {
		t.Error("a pod without a burst is written")
	}
}

// TestKeeperPanic verifies that a panic while the limits of a pod are moved does not end the process, and that the pod is lowered later.
func TestKeeperPanic(t *testing.T) {
	k := newKept(t, pod("web", "c1"))
	log, _ := test.NewNullLogger()
	k.cfg.Recovery = recovery.New(log)
	k.cfg.Raise = func(context.Context, string, func(string, blkio.Address) bool) error { panic("no such key") }
	k.Keeper.raised = map[string]bool{"pod c1": true}
	if k.move(t.Context(), nil); !k.Keeper.raised["pod c1"] {
		t.Error("the pod counts as lowered")
	}
	k.cfg.Raise = k.raise
	if k.move(t.Context(), nil); k.Keeper.raised["pod c1"] || k.calls != 1 {
		t.Errorf("%v after %d calls", k.Keeper.raised, k.calls)
	}
}

// TestKeeperUnsaved verifies that nothing is raised while the credits cannot be saved, and that it is logged once.
func TestKeeperUnsaved(t *testing.T) {
	k := newKept(t, pod("web", "c1"))
	if err := os.WriteFile(filepath.Dir(k.cfg.File.Path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if k.steps(20); k.raised["pod c1"] || k.Report()[0].Raised {
		t.Error("raised without saved credits")
	}
	if n := len(k.hook.AllEntries()); n != 2 { // that it cannot be read, and that it cannot be saved
		t.Errorf("%d lines are logged", n)
	}
	if err := os.Remove(filepath.Dir(k.cfg.File.Path)); err != nil {
		t.Fatal(err)
	}
	if k.steps(2); !k.raised["pod c1"] {
		t.Error("not raised with saved credits")
	}
}
