package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// runLate creates and starts a container while the disks of the node cannot be read.
func (b *budgetNode) runLate(sb *Sandbox, c *Container) {
	b.t.Helper()
	broken, storage := true, b.storage
	b.storage = flaky{disks{twoDisks}, &broken}
	b.run(sb, c)
	b.storage = storage
}

// wantLimits checks the limits of a container on both disks, blkio.Max for none.
func (b *budgetNode) wantLimits(when string, sb *Sandbox, c *Container, vda, vdb blkio.Amount) {
	b.t.Helper()
	for disk, want := range map[blkio.Disk]blkio.Amount{rootDisk: vda, dataDisk: vdb} {
		if got := b.recordedWbps(b.cgroupOf(sb, c), record.KindContainer, disk); got != want {
			b.t.Errorf("%s: the container has wbps=%v on %s, want %v", when, got, disk.Name, want)
		}
	}
}

const floor = blkio.Amount(64 << 10)

// TestLateContainer verifies that a container that an internal failure let start is not granted more than the room in the budget,
// and that it gets the rest once there is room.
func TestLateContainer(t *testing.T) {
	b, events := newBudgetNode(t, tenantBudget), &noted{}
	b.events = events
	logs := logtest.NewLocal(b.log.(*logrus.Logger))
	full, other, late := tenant("1", "* wbps=200Mi"), tenant("2", "* wbps=150Mi"), tenant("3", "* wbps=100Mi")
	c := member(late, "x", bind("/mnt/data/x", "/data"))
	b.run(full, member(full, "x"))
	b.runLate(late, c)
	for range 3 {
		b.pass(t.Context())
		b.wantLimits("full", late, c, floor, 100*mi)
		b.wantGranted("full", "tenant-a vda wbps 204864Ki of 200Mi, 2 pods; tenant-a vdb wbps 100Mi of 200Mi, 1 pods")
	}
	r, err := record.Read(b.cgroups.Cgroup(b.cgroupOf(late, c)), record.KindContainer)
	const why = "wbps=100Mi on disk vda exceeds the budget of namespace tenant-a: "
	if err != nil || !strings.Contains(r.Error, why) {
		t.Errorf("record %+v, %v", r, err)
	}
	b.RemovedPod(full.ID)
	b.run(other, member(other, "x"))
	b.pass(t.Context())
	b.wantLimits("some room", late, c, 50*mi, 100*mi)
	warnings := 0
	for _, e := range logs.AllEntries() {
		if e.Message == "Some limits of a running container are not enforced" {
			warnings++
		}
	}
	const event = "u3 tenant-a/3 BlkioNotInForce: some limits are not in force: nri-blkio: limits.blkio"
	got := slices.DeleteFunc(events.take(), func(e string) bool { return !strings.Contains(e, "BlkioNotInForce") })
	if warnings != 1 || len(got) != 1 || !strings.HasPrefix(got[0], event) {
		t.Errorf("%d warnings, events %q", warnings, got)
	}
	o := member(other, "x")
	c.State, o.State = Running, Running
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{other, late}, []*Container{o, c})
	b.pass(t.Context())
	b.wantLimits("restarted", late, c, 50*mi, 100*mi)
	b.RemovedPod(other.ID)
	b.pass(t.Context())
	b.wantLimits("room", late, c, 100*mi, 100*mi)
	b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "10Mi", 1)))
	b.pass(t.Context())
	b.wantLimits("a lower budget", late, c, 100*mi, 100*mi)
	b.wantGranted("a lower budget", "tenant-a vda wbps 100Mi of 10Mi, 1 pods; tenant-a vdb wbps 100Mi of 10Mi, 1 pods")
}

// TestLateContainerWithoutLimit verifies that such a container has a limit on each disk also if it asks for none, or only for its
// pod as a whole. It does not raise the limit that its pod has.
func TestLateContainerWithoutLimit(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, other := withTotal("* wbps=10Mi; /big wbps=150Mi; /data wbps=20Mi", ""), tenant("2", "* wbps=60Mi")
	b.run(one, member(one, "plain"))
	b.run(other, member(other, "x"))
	big := member(one, "big", bind("/var/lib/x", "/big"), bind("/mnt/data/x", "/data"))
	b.runLate(one, big)
	for range 2 {
		b.pass(t.Context())
		b.wantGranted("pod-total", "tenant-a vda wbps 70Mi of 200Mi, 2 pods; tenant-a vdb wbps 20Mi of 200Mi, 1 pods")
		for disk, want := range map[blkio.Disk]blkio.Amount{rootDisk: 10 * mi, dataDisk: 20 * mi} {
			if got := b.recordedWbps(sliceOf("1"), record.KindPod, disk); got != want {
				t.Errorf("the pod's cgroup has wbps=%v on %s, want %v", got, disk.Name, want)
			}
		}
	}
	plain := tenant("3", "")
	c := member(plain, "x")
	b.runLate(plain, c)
	b.pass(t.Context()) // the order of pods is random, and one that is not decided yet takes all of the budget
	b.pass(t.Context())
	b.wantLimits("no annotation", plain, c, 130*mi, blkio.Max)
	b.wantGranted("no annotation", "tenant-a vda wbps 200Mi of 200Mi, 3 pods; tenant-a vdb wbps 20Mi of 200Mi, 1 pods")
	b.SetLive("u3", &Live{Namespace: "tenant-a", Name: "3", Annotations: annotationsOf(limitsKey+"containers", "* wbps=30Mi")})
	b.pass(t.Context())
	b.wantLimits("edited", plain, c, 30*mi, blkio.Max)
	if c := b.peek().pods["sb-3"].containers[c.ID]; c.isLate() || c.decision.err != nil {
		t.Errorf("after an edit for which there is room: %v", c.decision.err)
	}
}

// TestLateContainerNotRefused verifies that a container whose creation was not checked is not granted more than the room either if
// the runtime starts it although the plugin rejects it, and that it is if the policy does not reject it.
func TestLateContainerNotRefused(t *testing.T) {
	for text, want := range map[string]blkio.Amount{"": 50 * mi, "onError: {invalid: ignore}\n": 60 * mi} {
		b := newBudgetNode(t, tenantBudget+text)
		full, late := tenant("1", "* wbps=150Mi"), tenant("2", "* wbps=60Mi")
		b.run(full, member(full, "x"))
		c := member(late, "x")
		b.place(strings.TrimPrefix(late.Cgroup, "/"))
		b.place(b.cgroupOf(late, c))
		if err := b.Start(t.Context(), late, c, false); err != nil {
			t.Error(err)
		}
		b.wantLimits("started", late, c, want, blkio.Max)
		b.pass(t.Context())
		b.wantLimits("reconciled", late, c, want, blkio.Max)
	}
}

// TestRunningIsNotLate verifies that the budget is not asked for containers that ran before the plugin, or its policy, knew them.
func TestRunningIsNotLate(t *testing.T) {
	b := newBudgetNode(t, "")
	one, two := tenant("1", "* wbps=150Mi"), tenant("2", "* wbps=150Mi")
	c1, c2 := member(one, "x"), member(two, "x")
	b.run(one, c1)
	b.run(two, c2)
	want := func(when string) {
		t.Helper()
		b.pass(t.Context())
		b.wantLimits(when, one, c1, 150*mi, blkio.Max)
		b.wantLimits(when, two, c2, 150*mi, blkio.Max)
	}
	b.Reload(rules(t, tenantBudget))
	want("a new budget")
	c1.State, c2.State = Running, Running
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{one, two}, []*Container{c1, c2})
	want("restarted")
	if got := b.peek().pods["sb-1"].containers[c1.ID].disks.Facts.Stage; got != policy.Running {
		t.Errorf("stage %v", got)
	}
}
