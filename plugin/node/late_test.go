package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
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

// TestLateWithoutRoomInRecord verifies that a restarted plugin knows a late container whose record has no room for warnings.
func TestLateWithoutRoomInRecord(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	full, late := tenant("1", "* wbps=150Mi"), tenant("2", "")
	late.Annotations = annotationsOf(limitsKey+"container.x", "* wbps=60Mi", limitsKey+"containers", "* wbps=64Ki")
	late.Name = strings.Repeat("n", 200)
	f := member(full, "x")
	b.run(full, f)
	const others = 130
	var all []*Container
	for i := range others {
		o := member(late, fmt.Sprintf("c%d", i))
		b.run(late, o)
		all = append(all, o)
	}
	var mounts []inventory.Mount
	for i := range 16 { // each is a line of the record
		mounts = append(mounts, inventory.Mount{Type: "tmpfs", Source: "tmpfs", Destination: "/" + strings.Repeat("m", 50) + fmt.Sprint(i)})
	}
	c := member(late, "x", mounts...)
	b.runLate(late, c)
	b.pass(t.Context())
	if r := recordOf(t, b.Node, b.cgroupOf(late, c)); len(r.Warnings) > 0 {
		t.Fatalf("the record has room for %q", r.Warnings)
	}
	b.wantLimits("late", late, c, 50*mi-others*floor, blkio.Max)
	all = append(all, f, c)
	for _, o := range all {
		o.State = Running
	}
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{full, late}, all)
	b.pass(t.Context())
	b.pass(t.Context())
	b.wantLimits("restarted", late, c, 50*mi-others*floor, blkio.Max)
}

// TestMountRoomAfterRestart verifies that the mounts of an ended container take no room from another one after a restart, when the
// runtime lists both.
func TestMountRoomAfterRestart(t *testing.T) {
	b := newBudgetNode(t, "")
	sb := tenant("1", "rootfs wbps=10Mi")
	var many []inventory.Mount
	for i := range 2300 {
		source := fmt.Sprintf("/var/lib/kubelet/pods/u1/volumes/%s/%04d", strings.Repeat("x", 23), i)
		many = append(many, bind(source, fmt.Sprintf("/data/%s/%04d", strings.Repeat("y", 57), i)))
	}
	ended, again, other := member(sb, "a", many...), member(sb, "a", many...), member(sb, "b", many...)
	again.ID, again.Cgroup = again.ID+"2", again.Cgroup+"2"
	b.run(sb, ended)
	b.end(sb, ended)
	b.run(sb, again)
	b.run(sb, other)
	b.pass(t.Context())
	ended.State, again.State, other.State = Stopped, Running, Running
	b.restart("")
	b.Synchronize([]*Sandbox{sb}, []*Container{ended, again, other})
	b.pass(t.Context())
	b.pass(t.Context())
	if err := b.peek().pods["sb-1"].containers[other.ID].decision.err; err != nil {
		t.Error(err)
	}
}
