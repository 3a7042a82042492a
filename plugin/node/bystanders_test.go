package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBystanderEnds verifies that no facts are kept of a container that was removed or that could not be created,
// nor of a sandbox that is removed. None of them becomes known.
func TestBystanderEnds(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	kept := func(want ...string) {
		t.Helper()
		var got []string
		if p := n.peek().pods["sb1"]; p != nil {
			for _, c := range p.sorted() {
				got = append(got, c.id)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("kept %v, want %v", got, want)
		}
	}
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		c := ctr(id[:1])
		c.ID = id
		n.PassBy(batch(), c, Created, n.Policy())
	}
	kept("a3", "b1")
	again := ctr("a")
	again.ID = "a3"
	n.PassBy(batch(), again, Running, n.Policy())
	kept("a3", "b1")
	n.Stopped("sb1", "b1")
	kept("a3", "b1")
	n.Removed("sb1", "b1")
	kept("a3")
	n.Synchronize([]*Sandbox{batch()}, []*Container{listed("x", isStopped), listed("y", isRunning)})
	kept("id-x", "id-y")
	n.Removed("sb1", "id-x")
	n.Removed("sb1", "id-y")
	kept()
	found := n.bystanding()
	n.RemovedPod("sb1")
	n.concern(found[0].group, nil) // a reload that has found it before
	n.Reload(rules(t, inProd))
	if pods, _, _ := n.Counts(); pods != 0 || len(n.peek().bystanders)+len(n.peek().pods) != 0 {
		t.Errorf("%d pods are known", pods)
	}
}

// TestReloadWithinSynchronize verifies that a policy that admits a pod while the runtime's list is taken over
// loses no facts about the pod.
func TestReloadWithinSynchronize(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.PassBy(batch(), ctr("a"), Running, n.Policy())
	sandboxes, ctrs := []*Sandbox{batch()}, []*Container{listed("a", isRunning)}
	before := n.listed(sandboxes)
	n.Reload(rules(t, inProd))
	n.pass(t.Context())
	known, group := n.peek().pods["sb1"], n.peek().groups[podCgroup]
	n.takeOver(before, ctrs)
	if now := n.peek(); known == nil || now.pods["sb1"] != known || now.groups[podCgroup] != group || len(known.containers) != 1 || len(now.bystanders) != 0 {
		t.Error("the pod has become another one")
	}
}

// TestPolicyBetweenEvents verifies that a policy that comes while an event is passed by is not missed.
func TestPolicyBetweenEvents(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd)) // and no bystander was there to be admitted
	if !n.PassBy(batch(), ctr("a"), Created, policy.Default()) {
		t.Fatal("the policy is missed")
	}
	spec, err := n.create(t.Context(), batch(), ctr("a"), false)
	if err != nil || spec.DevLimits()[rootDisk.Dev][blkio.Wbps] != 20<<20 {
		t.Errorf("%v, %v", spec, err)
	}
	if s := n.peek(); len(s.pods["sb1"].containers) != 1 || len(s.bystanders) != 0 || s.unexpected != 0 {
		t.Errorf("%d containers, %d bystanders, %d unexpected events", len(s.pods["sb1"].containers), len(s.bystanders), s.unexpected)
	}
	n.Reload(policy.Default())
	start(t, n, batch(), "a")
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != blkio.Max {
		t.Errorf("without a class: %v", got)
	}
}

// TestBystanderUnified verifies that of the control files in a container's OCI spec those are kept that a
// decision depends on.
func TestBystanderUnified(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	c := ctr("a")
	c.Unified = map[string]string{"io.max": "254:0 wbps=1", "memory.high": "1024", "misc.max": strings.Repeat("x", 1<<20)}
	n.PassBy(batch(), c, Created, n.Policy())
	kept := n.peek().pods["sb1"].containers["id-a"]
	if len(kept.spec.Others) != 1 || kept.memoryLimit != 1024 {
		t.Errorf("kept %v, memory limit %d", kept.spec, kept.memoryLimit)
	}
}
