package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// recoveringNode is a Node that recovers from panics, and the log of these.
type recoveringNode struct {
	*Node
	panics *logtest.Hook
}

func newRecoveringNode(t *testing.T, h *cgroupfs.Hierarchy) *recoveringNode {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	panics, hook := logtest.NewNullLogger()
	n, err := New(Config{
		Log: log, Policy: policy.Default(), Storage: fakenode.MountTable{Disks: fakenode.NewDisks()}, Cgroups: h, Recovery: recovery.New(panics),
		Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.exits.ends.Open = func() (handover.Kernel, error) { return idleKernel{}, nil }
	return &recoveringNode{n, hook}
}

// idleKernel reports no exits.
type idleKernel struct{}

func (idleKernel) Add(cgroupfs.Cgroup) error { return nil }
func (idleKernel) Close() error              { return nil }

func (idleKernel) Run(ctx context.Context, _ func(error), _ func(*cgroupfs.OpenCgroup)) error {
	<-ctx.Done()
	return ctx.Err()
}

// steps returns the steps whose panics were logged.
func (n *recoveringNode) steps() (out []string) {
	for _, e := range n.panics.AllEntries() {
		out = append(out, fmt.Sprint(e.Data["step"]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// brokenPod adds a pod to the state at which each step panics, since one of its containers is nil. It
// returns a function that repairs the pod.
func (n *recoveringNode) brokenPod() (repair func()) {
	sb := limited("rootfs wbps=1Mi")
	sb.ID, sb.UID, sb.Cgroup = "broken", "broken", "/kubepods.slice/kubepods-broken.slice"
	broken := n.lookup(sb)
	set := func(containers ...*container) {
		s := n.state.Lock()
		defer n.state.Unlock()
		broken.in(s).containers = containers
		s.markDirty(broken.group.in(s))
	}
	set((*container)(nil))
	return func() { set() }
}

// TestReconcilerGoesOn verifies that the limits of other pods stay in force if each step of the reconciler
// panics at one pod. The panics cause no additional passes, and no lock stays held.
func TestReconcilerGoesOn(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	synctest.Test(t, func(t *testing.T) {
		n := newRecoveringNode(t, h)
		sb := limited("rootfs wbps=1Mi")
		start(t, n.Node, sb, "a")
		if _, err := n.create(t.Context(), sb, ctr("b"), false); err != nil {
			t.Fatal(err)
		}
		repair := n.brokenPod()
		ctx, cancel := context.WithCancel(t.Context())
		go n.Run(ctx)
		synctest.Wait()
		for range 3 {
			write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "")
			time.Sleep(defaultResync + time.Second)
			synctest.Wait()
			if got := wbps(t, n.Node, cgroupOf("a")); got != 1<<20 {
				t.Errorf("the other pod's limit is %v, want 1 MiB/s", got)
			}
		}
		if c := n.peek().pods[sb.ID].container("id-b"); !c.mayRun() {
			t.Errorf("the other pod's container b, whose start was missed, is %v", c.life.Phase())
		}
		want := []string{"find complete pods", "find mounts", "find removed pods", "find running containers", "find undeclared disks", "tell notices"}
		if diff := cmp.Diff(want, n.steps()); diff != "" {
			t.Errorf("steps with a panic, -want +got:\n%s", diff)
		}
		if lines := len(n.panics.AllEntries()); lines > len(want) {
			t.Errorf("%d lines are logged in three passes", lines)
		}
		repair()
		n.panics.Reset()
		time.Sleep(recovery.Pause + time.Hour)
		synctest.Wait()
		if got := n.steps(); len(got) > 0 {
			t.Errorf("steps with a panic after the repair: %v", got)
		}
		n.Counts() // does not return if the state stays locked
		cancel()
		synctest.Wait()
	})
}

// TestPanicsOfTests verifies that, without a Recovery, a panic of a step is not recovered, so that tests fail.
func TestPanicsOfTests(t *testing.T) {
	h, _ := tree(t)
	n := newRecoveringNode(t, h)
	n.recovery = nil
	n.brokenPod()
	err := func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = errors.New("seen")
			}
		}()
		n.pass(t.Context())
		return nil
	}()
	if err == nil {
		t.Error("the panic of a step was recovered")
	}
}
