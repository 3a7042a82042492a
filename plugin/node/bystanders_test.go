package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBystander verifies that pods that a new policy concerns are found by the facts of the list and of events.
func TestBystander(t *testing.T) {
	for name, tell := range map[string]func(*Node){
		"listed": func(n *Node) { n.Synchronize([]*Sandbox{batch()}, []*Container{listed("a", isRunning)}) },
		"started": func(n *Node) {
			n.PassBy(batch(), ctr("a"), Created, n.Policy())
			n.PassBy(batch(), ctr("a"), Running, n.Policy())
		},
		"created": func(n *Node) { n.PassBy(batch(), ctr("a"), Created, n.Policy()) }, // its start was not heard
	} {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		tell(n)
		if pods, _, _ := n.Counts(); pods != 0 {
			t.Fatalf("%s: %d pods are known", name, pods)
		}
		n.Reload(rules(t, inProd))
		n.pass(t.Context())
		if pods, _, _ := n.Counts(); pods != 1 || wbps(t, n, cgroupOf("a")) != 20<<20 || wbps(t, n, podCgroup) != 20<<20 {
			t.Errorf("%s: %d pods are known, %v", name, pods, wbps(t, n, cgroupOf("a")))
		}
		if !n.PassBy(batch(), listed("b", isRunning), Running, n.Policy()) || len(n.peek().bystanders) != 0 {
			t.Errorf("%s: it is still of no concern", name)
		}
	}
}

// TestBystanderEnds verifies that no facts are kept of a container that has ended or that could not be created,
// nor of a sandbox that is removed. None of them becomes known.
func TestBystanderEnds(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	kept := func(want ...string) {
		t.Helper()
		var got []string
		if b := n.peek().bystanders["sb1"]; b != nil {
			for _, c := range b.containers {
				got = append(got, c.ID)
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
	kept("b1", "a3")
	n.Stopped("sb1", "b1")
	kept("a3")
	n.Synchronize([]*Sandbox{batch()}, []*Container{listed("x", isStopped), listed("y", isRunning)})
	kept("id-y")
	n.Removed("sb1", "id-y")
	kept()
	n.RemovedPod("sb1")
	pod, cgroup := n.describePod(batch())
	n.pods.admitBystander(pod, cgroup, false) // a reload that has found it before
	n.Reload(rules(t, inProd))
	if pods, _, _ := n.Counts(); pods != 0 || len(n.peek().bystanders) != 0 {
		t.Errorf("%d pods are known", pods)
	}
}

// TestBystanderEndedUnseen verifies that a container that ended while the plugin was not connected leaves no
// limit on its pod. A new policy has a class for the pod, but no limit has delayed the container's writes.
func TestBystanderEndedUnseen(t *testing.T) {
	for name, tell := range map[string]func(*Node){
		"listed":  func(n *Node) { n.Synchronize([]*Sandbox{batch()}, []*Container{listed("a", isRunning)}) },
		"started": func(n *Node) { n.PassBy(batch(), ctr("a"), Running, n.Policy()) },
	} {
		h, _ := tree(t, podCgroup) // the cgroup of the container was removed
		n := newNode(t, h)
		tell(n)
		n.pass(t.Context()) // it has no record
		n.Reload(rules(t, inProd))
		n.pass(t.Context())
		n.Synchronize([]*Sandbox{batch()}, nil)
		n.pass(t.Context())
		if got := wbps(t, n, podCgroup); got != blkio.Max {
			t.Errorf("%s: the pod has the limit %v", name, got)
		}
		if phase := n.peek().groups[podCgroup].drain.Phase(); phase != lifecycle.Drained {
			t.Errorf("%s: %v, want %v", name, phase, lifecycle.Drained)
		}
	}
}

// TestAdmittedWithoutHandOver verifies that a former bystander that was limited leaves data that the limit
// holds back, also without the hand-over.
func TestAdmittedWithoutHandOver(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.PassBy(batch(), ctr("a"), Running, n.Policy())
	n.Reload(rules(t, inProd+"writeback: {handOver: false}\n"))
	n.pass(t.Context())
	if err := os.RemoveAll(filepath.Join(dir, cgroupOf("a"))); err != nil {
		t.Fatal(err)
	}
	n.Stopped("sb1", "id-a")
	n.pass(t.Context())
	if phase, got := n.peek().groups[podCgroup].drain.Phase(), wbps(t, n, podCgroup); phase != lifecycle.Leftovers || got != 20<<20 {
		t.Errorf("%v, and the pod has %v", phase, got)
	}
}

// TestBystanderWithoutProcess verifies that the start of a container that is restored from a checkpoint is
// reported before its cgroup exists. A policy that comes in between still limits it.
func TestBystanderWithoutProcess(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	n.PassBy(batch(), ctr("a"), Created, n.Policy())
	n.PassBy(batch(), ctr("a"), Running, n.Policy())
	n.Reload(rules(t, inProd))
	n.pass(t.Context())
	cgroup := filepath.Join(dir, cgroupOf("a"))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cgroup, "io.max"), "")
	write(t, filepath.Join(cgroup, "io.weight"), "default 100\n")
	write(t, filepath.Join(cgroup, "cgroup.events"), "populated 0\nfrozen 0\n")
	n.pass(t.Context())
	write(t, filepath.Join(cgroup, "cgroup.events"), "populated 1\nfrozen 0\n")
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != 20<<20 {
		t.Errorf("limit %v", got)
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
	n.pods.takeOver(before, listedBystanders(policy.Default(), before, sandboxes, ctrs), sandboxes, ctrs)
	if now := n.peek(); known == nil || now.pods["sb1"] != known || now.groups[podCgroup] != group || len(known.containers) != 1 || len(now.bystanders) != 0 {
		t.Error("the pod has become another one")
	}
}

// TestRecordedBystander verifies that a later pass removes the limits of a pod with a record that an event
// could not read. A pod without a record does not become known.
func TestRecordedBystander(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	if _, err := n.create(t.Context(), batch(), ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, batch(), "a")
	write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=20971520 riops=max wiops=max\n")

	n = newNode(t, h)
	other := batch()
	other.ID, other.Cgroup = "sb2", "/kubepods.slice/kubepods-pod2.slice" // which is not there
	n.PassBy(batch(), ctr("a"), Running, n.Policy())                      // as if Knows had failed
	n.PassBy(other, ctr("b"), Running, n.Policy())
	if err := n.admitRecorded(t.Context(), n.pods.takeUnread(false)); err != nil {
		t.Fatal(err)
	}
	if writes := n.peek().pods["sb1"].containers["id-a"].writes(); writes != lifecycle.WritesUnknown {
		t.Errorf("its writes count as %d: a limit of the record may hold them back", writes)
	}
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != blkio.Max {
		t.Errorf("limit %v", got)
	}
	if pods, _, _ := n.Counts(); pods != 1 || len(n.peek().bystanders) != 0 {
		t.Errorf("%d pods are known, bystanders %v", pods, n.peek().bystanders)
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
	kept := n.peek().bystanders["sb1"].containers[0]
	if len(kept.Unified) != 2 || kept.memoryLimit() != 1024 || len(c.Unified) != 3 {
		t.Errorf("kept %v", kept.Unified)
	}
}
