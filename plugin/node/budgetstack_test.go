package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// volumes is a Storage with logical volumes on vda (/mnt/lv), on an md device of vda and vdb (/mnt/md), loop devices with files on vdb
// (/mnt/loop), and volumes whose physical disk is not found (/mnt/lost), each by a number. /mnt/both is a btrfs of two logical volumes.
type volumes struct{ disks }

func newVolumes() volumes {
	return volumes{disks{func(path string) blkio.Backing {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/mnt/"), "/")
		kind := strings.TrimRight(name, "0123456789")
		if major := map[string]uint32{"lv": 253, "md": 9, "loop": 7, "lost": 250}[kind]; major != 0 {
			minor, _ := strconv.Atoi(name[len(kind):])
			return on(blkio.Disk{Dev: blkio.Dev{Major: major, Minor: uint32(minor)}, Name: name})
		}
		if strings.HasPrefix(path, "/mnt/both") {
			return blkio.Backing{FSType: "btrfs", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "lv1"}, {Dev: blkio.Dev{Major: 9, Minor: 1}, Name: "md1"}}}
		}
		return twoDisks(path)
	}}}
}

func (volumes) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	switch dev.Major {
	case 253:
		return []blkio.Disk{rootDisk}, nil
	case 9:
		return []blkio.Disk{rootDisk, dataDisk}, nil
	case 7:
		return []blkio.Disk{{Dev: dev, Name: fmt.Sprint("loop", dev.Minor)}}, nil
	case 250:
		return nil, errors.New("no such device")
	}
	return []blkio.Disk{{Dev: dev, Name: map[blkio.Dev]string{rootDisk.Dev: "vda", dataDisk.Dev: "vdb"}[dev]}}, nil
}

func (volumes) Under(_ context.Context, dev blkio.Dev) []blkio.Disk {
	if dev.Major == 7 {
		return []blkio.Disk{dataDisk}
	}
	return nil
}

// TestBudgetOfLogicalVolumes verifies that pods share a budget on the physical disk below their logical volumes, of which each has one
// of its own.
func TestBudgetOfLogicalVolumes(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	start := func(i int, value string) error {
		sb := tenant(fmt.Sprint(i), value)
		return b.createOf(sb, member(sb, "a", bind(fmt.Sprintf("/mnt/lv%d/v", i), "/data")))
	}
	for i := range 5 {
		if err := start(i, "rootfs wbps=1Mi; /data wbps=190Mi"); (err == nil) != (i == 0) {
			t.Errorf("pod %d: %v", i, err)
		}
	}
	b.wantGranted("one", "tenant-a vda wbps 191Mi of 200Mi, 1 pods")
	if err := start(6, "rootfs wbps=1Mi; /data wbps=8Mi"); err != nil {
		t.Error(err)
	}
	b.wantGranted("two", "tenant-a vda wbps 200Mi of 200Mi, 2 pods")
}

// stackedCase is a pod of one container with volumes on devices, and what it is granted on the physical disks below them. If it is
// rejected, refusal is the end of the error.
type stackedCase struct {
	name, each, total, devices string
	granted, refusal           string
}

// TestBudgetOfStacks verifies what one pod is granted on the physical disks below its devices.
func TestBudgetOfStacks(t *testing.T) {
	const exceeds = " on disk vda exceeds the budget of namespace tenant-a: 200Mi (write at most 200Mi)"
	for _, tt := range []stackedCase{
		{name: "a volume, and its disk", each: "* wbps=10Mi", devices: "lv1", granted: "vda 20Mi"},
		{name: "volumes of one disk", each: "rootfs wbps=1Mi; * wbps=10Mi", devices: "lv1 lv2 lv3", granted: "vda 31Mi"},
		{name: "two mounts of a volume", each: "* wbps=10Mi", devices: "lv1 lv1", granted: "vda 20Mi"},
		{name: "a device of two disks", each: "rootfs wbps=1Mi; * wbps=10Mi", devices: "md1", granted: "vda 11Mi, vdb 10Mi"},
		{name: "a filesystem on two devices", each: "rootfs wbps=1Mi; * wbps=10Mi", devices: "both", granted: "vda 21Mi, vdb 10Mi"},
		{name: "a loop device", each: "* wbps=10Mi", devices: "loop1", granted: "vda 10Mi, vdb 10Mi"},
		{name: "unknown disks", each: "* wbps=10Mi", devices: "lost1 lost2", granted: "lost1 10Mi, lost2 10Mi, vda 10Mi"},
		{name: "the pod as a whole", total: "* wbps=10Mi", devices: "lv1 lv2", granted: "vda 30Mi"},
		{name: "the pod as a whole, on one", each: "* wbps=20Mi", total: "/0 wbps=5Mi", devices: "lv1", granted: "vda 25Mi"},
		{name: "above the pod as a whole", each: "* wbps=100Mi", total: "* wbps=80Mi", devices: "lv1", granted: "vda 160Mi"},
		{name: "too much on two volumes", each: "rootfs wbps=1Mi; * wbps=100Mi", devices: "lv1 lv2", refusal: "containers: wbps=201Mi" + exceeds},
		{name: "too much on one disk of two", each: "rootfs wbps=150Mi; /0 wbps=51Mi", devices: "md1", refusal: "containers: wbps=201Mi" + exceeds},
		{name: "too much for the pod as a whole", total: "* wbps=80Mi", devices: "lv1 lv2", refusal: "pod-total: wbps=240Mi" + exceeds},
		{
			name: "a volume without a limit", each: "rootfs wbps=1Mi", devices: "lv1",
			refusal: `containers: wbps of * needs a limit: disk lv1 has none, and namespace tenant-a has a budget (write for example "* wbps=25Mi")`,
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func (tt *stackedCase) run(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	sb := tenant("1", tt.each)
	if tt.total != "" {
		sb = withTotal(tt.total, tt.each)
	}
	var mounts []inventory.Mount
	for i, device := range strings.Fields(tt.devices) {
		mounts = append(mounts, bind("/mnt/"+device+"/v", fmt.Sprint("/", i)))
	}
	c := member(sb, "a", mounts...)
	if tt.refusal != "" {
		b.wantRefusal(sb, c, tt.refusal)
		return
	}
	b.run(sb, c)
	b.wantStacked("created", tt.granted)
	c.State = Running
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{sb}, []*Container{c})
	b.readAll()
	b.wantAmounts("restarted, and not decided yet", tt.granted)
	b.pass(t.Context())
	b.wantStacked("decided", tt.granted)
}

// readAll reads the records of the containers that are not decided yet, as the creation of a container does.
func (b *budgetNode) readAll() {
	b.t.Helper()
	for _, c := range b.unread("tenant-a", b.policy.Load().BudgetFor("tenant-a")) {
		err := cmp.Or(b.recall(c.pod.group), b.recallContainer(&c))
		if err != nil {
			b.t.Error(err)
		}
		b.noteGranted(&c, b.lowest(b.knownLimits(&c)))
	}
}

// wantStacked compares the amounts on disks by their names: "vda 20Mi, vdb 1Mi".
func (b *budgetNode) wantStacked(when, want string) {
	b.t.Helper()
	b.wantUses(when, want, func(u *BudgetUse) string { return u.Disk.Name })
}

// wantAmounts is wantStacked, where the names of disks that are not below others are not known yet.
func (b *budgetNode) wantAmounts(when, want string) {
	b.t.Helper()
	names := map[blkio.Dev]string{rootDisk.Dev: "vda", dataDisk.Dev: "vdb", {Major: 250, Minor: 1}: "lost1", {Major: 250, Minor: 2}: "lost2"}
	b.wantUses(when, want, func(u *BudgetUse) string { return names[u.Disk.Dev] })
}

func (b *budgetNode) wantUses(when, want string, name func(*BudgetUse) string) {
	b.t.Helper()
	var got []string
	for _, u := range b.Budgets() {
		got = append(got, name(&u)+" "+annotation.FormatAmount(u.Key, u.Granted))
	}
	slices.Sort(got)
	if got := strings.Join(got, ", "); got != want {
		b.t.Errorf("%s: granted %q, want %q", when, got, want)
	}
	if err := b.checkSums(); err != nil {
		b.t.Errorf("%s: %v", when, err)
	}
}

// TestBudgetOfStackedRecords verifies that a volume of a container that is not decided for the budget counts on the physical disk below
// it: by the records after a restart, and by the decision of a policy without a budget.
func TestBudgetOfStackedRecords(t *testing.T) {
	const full = "wbps=60Mi on disk vda exceeds the budget of namespace tenant-a: 151Mi of 200Mi are granted to 1 pod (wait for room, or write at most 49Mi)"
	one, two := tenant("1", "rootfs wbps=1Mi; /data wbps=150Mi"), tenant("2", "rootfs wbps=60Mi")
	data := bind("/mnt/lv1/v", "/data")

	b := newBudgetNode(t, tenantBudget)
	b.run(one, member(one, "a", data))
	b.pass(t.Context())
	b.restart(tenantBudget)
	b.storage = newVolumes()
	runs := member(one, "a", data)
	runs.State = Running
	b.Synchronize([]*Sandbox{one}, []*Container{runs})
	b.wantRefusal(two, member(two, "a"), full)

	b = newBudgetNode(t, "")
	b.run(one, member(one, "a", data))
	b.policy.Store(rules(t, tenantBudget)) // a reload that has come no further
	b.wantRefusal(two, member(two, "a"), full)
	b.Reload(rules(t, tenantBudget))
	b.pass(t.Context())
	b.wantRefusal(two, member(two, "a"), full)
	b.wantStacked("decided", "vda 151Mi")
}

// TestLateOnVolumes verifies that a late container with several volumes of one physical disk gets the room there once.
func TestLateOnVolumes(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, two := tenant("1", "* wbps=150Mi"), tenant("2", "rootfs wbps=10Mi; * wbps=100Mi")
	b.run(one, member(one, "a"))
	c := member(two, "a", bind("/mnt/lv1/v", "/0"), bind("/mnt/lv2/v", "/1"))
	b.place(strings.TrimPrefix(two.Cgroup, "/"))
	b.place(b.cgroupOf(two, c))
	if err := b.Start(t.Context(), two, c, false); err != nil {
		t.Error(err)
	}
	b.pass(t.Context())
	b.wantStacked("late", "vda 204928Ki") // the floor on two of three devices
}

func withTotal(total, each string) *Sandbox {
	sb := tenant("1", "")
	sb.Annotations = annotationsOf(limitsKey+"pod-total", total)
	if each != "" {
		sb.Annotations[limitsKey+"containers"] = each
	}
	return sb
}
