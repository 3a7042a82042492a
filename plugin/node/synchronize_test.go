package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestSynchronizeParsesNothing: what tenants wrote does not decide how long
// Synchronize takes, and is in force afterwards.
func TestSynchronizeParsesNothing(t *testing.T) {
	const entries = 250
	var long strings.Builder
	for i := range entries {
		fmt.Fprintf(&long, "/%s%d rbps=0.000000001e18 wbps=1Mi;", strings.Repeat("x/", 80), i)
	}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi;" + long.String()})
	a := ctr("a")
	a.State = Running
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	allocations := func(sb *Sandbox) float64 {
		return testing.AllocsPerRun(10, func() { n.Synchronize([]*Sandbox{sb}, []*Container{a}) })
	}
	few := allocations(sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}))
	if many := allocations(sb); many > few+2 {
		t.Errorf("%v allocations for a pod with %d entries, %v for one entry", many, entries, few)
	}
	n.RemovedPod(sb.ID) // the first one is known by now
	n.Synchronize([]*Sandbox{sb}, []*Container{a})
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != 1<<20 {
		t.Errorf("the limit is %v, want 1 MiB/s", got)
	}
}

// TestPanicUnlocks: a panic under an event does not keep the node's state locked.
func TestPanicUnlocks(t *testing.T) {
	sb, c := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a")
	for event, call := range map[string]func(*Node){
		"Synchronize": func(n *Node) { n.Synchronize(nil, nil) },
		"Create": func(n *Node) {
			if _, decided, _ := n.Create(t.Context(), sb, c, false); !decided {
				panic("Create has made an error of it")
			}
		},
		"Start":      func(n *Node) { _ = n.Start(t.Context(), sb, c, true) },
		"Updated":    func(n *Node) { n.Updated(sb.ID) },
		"Stopped":    func(n *Node) { n.Stopped(sb.ID, c.ID) },
		"Removed":    func(n *Node) { n.Removed(sb.ID, c.ID) },
		"RemovedPod": func(n *Node) { n.RemovedPod(sb.ID) },
	} {
		t.Run(event, func(t *testing.T) {
			h, _ := tree(t)
			n := newNode(t, h)
			broken := &pod{podIdentity: podIdentity{id: "sb1"}, containers: map[string]*container{"id-a": {}}} // of no group
			broken.ref = guard.RefTo[state](broken)
			n.peek().pods["sb1"] = broken
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				call(n)
			}()
			n.Counts() // does not return if the state stays locked
		})
	}
}

// TestRefusal: a failure of ours refuses a container where the policy says so, and is counted.
func TestRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		mode     policy.Mode
		internal policy.Action
		want     error
	}{
		"default": {policy.ModeEnforce, policy.Ignore, nil},
		"reject":  {policy.ModeEnforce, policy.Reject, ErrInternal},
		"observe": {policy.ModeObserve, policy.Reject, nil},
	} {
		h, _ := tree(t)
		n := newNode(t, h)
		pol := policy.Default()
		pol.Mode, pol.OnError.Internal = tt.mode, tt.internal
		n.Reload(pol)
		counted := 0.0
		if tt.want != nil {
			counted = 1
		}
		if got := n.Refusal(sandbox(nil)); !errors.Is(got, tt.want) || scrape(t, n)["refused_containers_total{internal}"] != counted {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestUnknownRecord: a pod of no concern is known at Synchronize if its records cannot be listed, since
// it may have limits of an earlier process. A pod without a cgroup has none.
func TestUnknownRecord(t *testing.T) {
	for _, known := range []int{0, 1} {
		h, dir := tree(t)
		if known > 0 { // a link to itself
			if err := os.Symlink("kubepods.slice", filepath.Join(dir, "kubepods.slice")); err != nil {
				t.Fatal(err)
			}
		}
		n := newNode(t, h)
		n.Synchronize([]*Sandbox{sandbox(nil)}, []*Container{listed("a", isRunning)})
		if pods, _, _ := n.Counts(); pods != known {
			t.Errorf("%d pods are known, want %d", pods, known)
		}
	}
}
