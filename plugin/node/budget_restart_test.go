package node

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBudgetLateStart verifies that a container whose creation was not checked against the budget is checked
// when it starts.
func TestBudgetLateStart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	a, late := tenant("a", "* wbps=150Mi"), tenant("late", "* wbps=60Mi")
	b.run(a, member(a, "x"))
	err := b.startOf(late, member(late, "x"))
	if err == nil || !strings.Contains(err.Error(), "150Mi of 200Mi are granted to 1 pod (wait for room, or write at most 50Mi)") {
		t.Errorf("got %v", err)
	}
	b.wantGranted("until its end is reported", "tenant-a vda wbps 210Mi of 200Mi, 2 pods")
	b.Stopped(late.ID, "sb-late-x")
	b.wantGranted("ended", "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
	small := tenant("small", "* wbps=50Mi")
	if err := b.startOf(small, member(small, "x")); err != nil {
		t.Error(err)
	}
	for range 2 { // the budget is not asked again about one that has started
		if err := (&session{b.Node, noDeadline}).StartContainer(t.Context(), a, member(a, "x")); err != nil {
			t.Error(err)
		}
	}
}

// TestBudgetLateStartNotRefused verifies that Start rejects no container for its budget if the runtime only
// logs an error of the event.
func TestBudgetLateStartNotRefused(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	late := tenant("late", "")
	c := member(late, "x")
	if err := b.Start(t.Context(), late, c, false); err != nil {
		t.Error(err)
	}
}

// TestBudgetAfterRestart verifies that a restarted plugin counts running containers by their records before it
// has decided their limits.
func TestBudgetAfterRestart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	sandboxes, containers := map[string]*Sandbox{}, map[string]*Container{}
	for _, pod := range []string{"a", "b", "whole"} {
		sb := tenant(pod, "* wbps=60Mi")
		if pod == "whole" {
			sb.Annotations = map[string]string{limitsKey + "pod-total": "* wbps=60Mi"}
		}
		sandboxes[pod], containers[pod] = sb, member(sb, "x", bind("/mnt/data/x", "/data"))
		b.run(sb, containers[pod])
		containers[pod].State = Running
	}
	created := tenant("created", "rootfs wbps=1Mi") // is not started yet, so that only its OCI spec has its limit
	c := member(created, "x")
	if err := b.createOf(created, c); err != nil {
		t.Fatal(err)
	}
	c.State = Created
	sandboxes["created"], containers["created"] = created, c
	const full = "tenant-a vda wbps 181Mi of 200Mi, 4 pods; tenant-a vdb wbps 180Mi of 200Mi, 3 pods"
	b.wantGranted("before", full)

	b.restart(tenantBudget)
	broken := true
	b.storage = flaky{disks{twoDisks}, &broken}
	b.Synchronize(values(sandboxes), values(containers))
	broken = false
	d := tenant("d", "* wbps=60Mi")
	b.wantRefusal(d, member(d, "x"), "wbps=60Mi on disk vda exceeds the budget of namespace tenant-a: 181Mi of 200Mi are granted to 4 pods (wait for room, or write at most 19Mi)")
	if c := b.peek().pods["sb-a"].containers["sb-a-x"]; c.decision.policy != nil {
		t.Error("it is decided already")
	}
	b.pass(t.Context())
	b.wantGranted("after", full)

	// A container without a record has no limit as far as is known.
	plain := tenant("plain", "")
	p := member(plain, "x")
	p.State = Running
	b.place(b.cgroupOf(plain, p))
	sandboxes["plain"], containers["plain"] = plain, p
	b.restart(tenantBudget)
	b.Synchronize(values(sandboxes), values(containers))
	small := tenant("e", "* wbps=1Mi")
	b.wantRefusal(small, member(small, "x"), "the limits of a pod that runs are not decided yet (wait for room)")
	b.pass(t.Context())
	b.wantRefusal(small, member(small, "x"), "a pod without a limit there counts as granted all of 200Mi (wait for room)")
	b.RemovedPod(plain.ID)
	b.run(small, member(small, "x"))
}

func values[V any](of map[string]*V) (out []*V) {
	for v := range maps.Values(of) {
		out = append(out, v)
	}
	return out
}

// TestBudgetUnlisted verifies that a plugin to which the runtime sends no list of containers counts those that
// run by the records on their cgroups.
func TestBudgetUnlisted(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	for _, pod := range []string{"a", "b"} {
		sb := tenant(pod, "* wbps=60Mi")
		b.run(sb, member(sb, "x"))
	}
	whole := tenant("whole", "")
	whole.Annotations = map[string]string{limitsKey + "containers": "* wbps=50Mi", limitsKey + "pod-total": "* wbps=60Mi"}
	b.run(whole, member(whole, "x"))
	b.run(whole, member(whole, "y"))
	other := tenant("other", "* wbps=60Mi")
	other.Namespace = "tenant-b"
	b.run(other, member(other, "x"))

	b.restart(tenantBudget)
	b.Unlisted()
	d := tenant("d", "* wbps=60Mi")
	b.wantRefusal(d, member(d, "x"), noRoom)
	write(t, filepath.Join(b.dir, b.cgroupOf(tenant("a", ""), member(tenant("a", ""), "x")), "cgroup.events"), "populated 0\nfrozen 0\n")
	b.run(d, member(d, "x"))
	a := tenant("a", "* wbps=60Mi") // an event about it
	if err := b.startOf(a, member(a, "x")); err == nil {
		t.Error("a container that starts is not refused")
	}
}

// TestBudgetBystander verifies that a running pod that only a new policy concerns counts as a pod whose limits
// are not decided yet.
func TestBudgetBystander(t *testing.T) {
	b := newBudgetNode(t, "")
	plain := tenant("plain", "")
	b.run(plain, member(plain, "x"))
	b.policy.Store(rules(t, tenantBudget)) // a reload that has come no further
	a := tenant("a", "* wbps=60Mi")
	b.wantRefusal(a, member(a, "x"), "the limits of a pod that runs are not decided yet (wait for room)")
}

// TestBudgetOtherKernel verifies that a container with a kernel of its own does not count for a budget, because
// its disks are unknown.
func TestBudgetOtherKernel(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	kata := tenant("kata", "")
	kata.Handler = "kata"
	b.run(kata, member(kata, "x"))
	b.wantGranted("kata", "")
}

// TestCovers verifies that a decision made under one budget covers another budget only if the first one bounds
// all keys of the second.
func TestCovers(t *testing.T) {
	p := rules(t, "budgets: [{namespaces: [a], limits: ['* wbps=1Gi']}, {namespaces: [b], limits: ['* wbps=1Gi riops=max wiops=100']}]")
	one, two := p.BudgetFor("a"), p.BudgetFor("b")
	for _, tt := range []struct {
		b, other *policy.NamespaceBudget
		want     bool
	}{{one, one, true}, {two, one, true}, {one, two, false}, {nil, one, false}, {nil, nil, true}} {
		if got := covers(tt.b, tt.other); got != tt.want {
			t.Errorf("%+v covers %+v: %t", tt.b, tt.other, got)
		}
	}
}
