package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
)

// TestSynchronizeParsesNothing verifies that the text of tenants does not decide how long Synchronize takes,
// and that their limits are in force afterwards.
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
	few := allocations(limited("rootfs wbps=1Mi"))
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

// TestPanicUnlocks verifies that a panic under an event does not keep the node's state locked.
func TestPanicUnlocks(t *testing.T) {
	sb, c := limited("rootfs wbps=1Mi"), ctr("a")
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
			broken := &pod{podIdentity: podIdentity{&fixedFacts{id: "sb1", group: groupIdentity{&groupFacts{}}}}, containers: []*container{{snapshot: snapshot{identity: identity{id: "id-a"}}}}} // of no group
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
