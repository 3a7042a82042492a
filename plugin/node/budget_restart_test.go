package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
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
	b.wantGranted("until its end is reported", "tenant-a vda wbps 200Mi of 200Mi, 2 pods")
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

// recordedWbps returns the write limit on a disk that the record of a cgroup has as being in force, and blkio.Max for none.
func (b *budgetNode) recordedWbps(cgroup, kind string, disk blkio.Disk) blkio.Amount {
	b.t.Helper()
	r, err := record.Read(b.cgroups.Cgroup(cgroup), kind)
	if err != nil {
		b.t.Fatal(err)
	}
	if r == nil {
		return blkio.Max
	}
	s, found := r.Settings.Get(blkio.Address{Key: blkio.Wbps, Dev: disk.Dev})
	if !found {
		return blkio.Max
	}
	return s.Amount
}

// end ends a container with an event.
func (b *budgetNode) end(sb *Sandbox, c *Container) {
	write(b.t, filepath.Join(b.dir, b.cgroupOf(sb, c), "cgroup.events"), "populated 0\nfrozen 0\n")
	b.Stopped(sb.ID, c.ID)
}

// TestTotalOfEndedInit verifies that a restart of the plugin keeps a limit of the pod that an ended init container has brought. A
// container with the same disk at another path was admitted because of it, and so is one that comes later.
func TestTotalOfEndedInit(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one := withTotal("/init wbps=10Mi; rootfs wbps=10Mi", "")
	start, app := member(one, "start", bind("/mnt/data/x", "/init")), member(one, "app", bind("/mnt/data/x", "/data"))
	b.run(one, start)
	b.end(one, start)
	b.run(one, app)
	b.pass(t.Context())
	app.State = Running
	check := func(when string, want blkio.Amount) {
		t.Helper()
		for range 2 {
			b.pass(t.Context())
			if got := b.recordedWbps(sliceOf("1"), record.KindPod, dataDisk); got != want {
				t.Errorf("%s: the pod's cgroup has wbps=%v on vdb, want %v", when, got, want)
			}
		}
	}
	check("before", 10*mi)
	for range 2 {
		b.restart(tenantBudget)
		b.Synchronize([]*Sandbox{one}, []*Container{app})
		check("restarted", 10*mi)
	}
	b.wantGranted("restarted", "tenant-a vda wbps 10Mi of 200Mi, 1 pods; tenant-a vdb wbps 10Mi of 200Mi, 1 pods")
	again := member(one, "app", bind("/mnt/data/x", "/data"))
	again.ID, again.Cgroup = again.ID+"2", again.Cgroup+"2"
	b.run(one, member(one, "second", bind("/mnt/data/x", "/data")))
	b.end(one, app)
	b.run(one, again)
	check("another container", 10*mi)
	b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(
		limitsKey+"pod-total", "/init wbps=10Mi; rootfs wbps=10Mi", limitsKey+"containers", "rootfs wbps=5Mi")})
	check("an edit of another annotation", 10*mi)
	b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(
		limitsKey+"pod-total", "rootfs wbps=10Mi", limitsKey+"containers", "/data wbps=30Mi")})
	check("the entry was removed", 60*mi)
	b.wantGranted("edited", "tenant-a vda wbps 10Mi of 200Mi, 1 pods; tenant-a vdb wbps 60Mi of 200Mi, 1 pods")
}

// TestTotalBetweenContainers verifies that a pod keeps such a limit if the plugin restarts while no container of the pod runs, as
// between two tries of one that crashes. Until the next try, the pod's cgroup has no limit.
func TestTotalBetweenContainers(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one := withTotal("/init wbps=10Mi; rootfs wbps=10Mi", "")
	start := member(one, "start", bind("/mnt/data/x", "/init"))
	b.run(one, start)
	b.end(one, start)
	write(t, filepath.Join(b.dir, sliceOf("1"), "memory.stat"), "file_dirty 0\nfile_writeback 0\n")
	for try := range 3 {
		app := member(one, "app", bind("/mnt/data/x", "/data"))
		app.ID, app.Cgroup = fmt.Sprint(app.ID, try), fmt.Sprint(app.Cgroup, try)
		b.run(one, app)
		if got := b.recordedWbps(sliceOf("1"), record.KindPod, dataDisk); got != 10*mi {
			t.Errorf("try %d: the pod's cgroup has wbps=%v on vdb", try, got)
		}
		b.end(one, app)
		for range 3 {
			b.pass(t.Context())
		}
		b.restart(tenantBudget)
		b.Synchronize([]*Sandbox{one}, nil)
		b.pass(t.Context())
		if got := b.recordedWbps(sliceOf("1"), record.KindPod, dataDisk); got != blkio.Max {
			t.Errorf("after try %d: the pod's cgroup has wbps=%v on vdb", try, got)
		}
	}
}

// TestBudgetOfUndecidedTotal verifies that a restarted plugin counts a limit of a pod as a whole before it has decided the pod's
// containers, on a disk where these have no limit of their own.
func TestBudgetOfUndecidedTotal(t *testing.T) {
	for each, vda := range map[string]string{"rootfs wbps=1Mi": "1Mi", "": "150Mi"} {
		b := newBudgetNode(t, tenantBudget)
		one := withTotal("* wbps=150Mi", each)
		c := member(one, "x", bind("/mnt/data/x", "/data"))
		b.run(one, c)
		granted := "tenant-a vda wbps " + vda + " of 200Mi, 1 pods; tenant-a vdb wbps 150Mi of 200Mi, 1 pods"
		b.wantGranted("before", granted)
		c.State = Running
		b.restart(tenantBudget)
		b.Synchronize([]*Sandbox{one}, []*Container{c})
		second := tenant("2", "rootfs wbps=1Mi; /data wbps=60Mi")
		b.wantRefusal(second, member(second, "x", bind("/mnt/data/y", "/data")),
			"wbps=60Mi on disk vdb exceeds the budget of namespace tenant-a: 150Mi of 200Mi are granted to 1 pod (wait for room, or write at most 50Mi)")
		b.pass(t.Context())
		b.wantGranted("after", granted)
	}
}
