package node

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// flaky is a Storage that cannot read the mount table while it is broken.
type flaky struct {
	disks
	broken *bool
}

func (f flaky) Refresh(context.Context) error {
	if *f.broken {
		return errors.New("no mounts")
	}
	return nil
}

func limit(t *testing.T, n *Node, cgroup string) blkio.Limits {
	t.Helper()
	m, err := n.cgroups.Cgroup(cgroup).ReadIOMax()
	if err != nil {
		t.Fatal(err)
	}
	return m[rootDisk.Dev]
}

// TestOwnFailureIsRepaired verifies that a container starts although its mounts could not be read. It counts as
// unlimited for its pod, and gets its limits later.
func TestOwnFailureIsRepaired(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	broken := false
	n.storage = flaky{disks{twoDisks}, &broken}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if err := n.start(t.Context(), sb, ctr("a"), true); err != nil {
		t.Fatal(err)
	}
	if got := limit(t, n, podCgroup)[blkio.Wbps]; got != 1<<20 {
		t.Fatalf("backstop is %v, want 1 MiB/s", got)
	}
	broken = true
	if err := n.start(t.Context(), sb, ctr("b"), true); err == nil {
		t.Error("a start without mounts succeeded")
	}
	n.pass(t.Context())
	if got := limit(t, n, podCgroup)[blkio.Wbps]; got != blkio.Max && got != blkio.Unset {
		t.Errorf("backstop beside a container that nothing is known of: %v, want none", got)
	}
	broken = false
	n.pass(t.Context())
	if got := limit(t, n, cgroupOf("b"))[blkio.Wbps]; got != 1<<20 {
		t.Errorf("the limit is %v after the failure, want 1 MiB/s", got)
	}
}

// TestLateRefusal verifies that a container is limited as far as possible if it is too late to reject it, and
// that a warning names the missing limits.
func TestLateRefusal(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi; /x wbps=1"})
	if err := n.start(t.Context(), sb, ctr("a"), true); err == nil {
		t.Error("not refused")
	}
	n.pass(t.Context()) // it runs: the answer was not heard
	if got := limit(t, n, cgroupOf("a"))[blkio.Wbps]; got != 1<<20 {
		t.Errorf("the limit is %v, want 1 MiB/s", got)
	}
	r, err := record.Read(h.Cgroup(cgroupOf("a")), record.KindContainer)
	if err != nil || !strings.Contains(r.Error, `"/x wbps=1"`) {
		t.Errorf("record %+v, %v", r, err)
	}
}

// TestSandboxReplaced verifies that two sandboxes can share a pod's cgroup, as they do while the kubelet makes
// a new sandbox for the pod.
func TestSandboxReplaced(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	old := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=1Mi"})
	if err := n.start(t.Context(), old, ctr("a"), true); err != nil {
		t.Fatal(err)
	}
	n.Stopped("sb1", "id-a")
	next := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=2Mi"})
	next.ID = "sb2"
	again := ctr("a")
	again.Sandbox = "sb2"
	if err := n.start(t.Context(), next, again, true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.pass(t.Context())
		if got := limit(t, n, podCgroup)[blkio.Wbps]; got != 2<<20 {
			t.Fatalf("the pod has %v, want the new sandbox's 2 MiB/s", got)
		}
	}
	n.RemovedPod("sb1")
	n.RemovedPod("sb2")
	if len(n.peek().groups) != 0 || len(n.peek().pods) != 0 || len(n.peek().queue.waiting) != 0 {
		t.Errorf("left behind: %v, %v, %v", n.peek().groups, n.peek().pods, n.peek().queue.waiting)
	}
}

// TestSharedCgroup verifies that the plugin does not limit the cgroup of two pods.
func TestSharedCgroup(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true); err != nil {
		t.Fatal(err)
	}
	other := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=2Mi"})
	other.ID, other.UID = "sb2", "u2"
	_, err := n.create(t.Context(), other, ctr("b"), false)
	if refusal, ok := errors.AsType[*annotation.Error](err); !ok || refusal.Kind != annotation.Unenforceable {
		t.Errorf("got %v, want a refusal", err)
	}
	if pod := n.applier().planFor(n.peek().pods["sb1"].group).Pod; pod.Cgroup != "" {
		t.Errorf("%+v for a cgroup that is shared", pod)
	}
}

// TestSynchronize verifies that listed containers are taken over, others are forgotten, and known ones keep
// their facts.
func TestSynchronize(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	gone := sandbox(sb.Annotations)
	gone.ID, gone.UID, gone.Cgroup = "sb2", "u2", "/kubepods.slice/kubepods-pod2.slice"
	for _, s := range []*Sandbox{sb, gone} {
		if _, err := n.create(t.Context(), s, ctr("a"), false); err != nil {
			t.Fatal(err)
		}
	}
	known := n.peek().pods["sb1"].containers["id-a"]
	running := func(name string) *Container {
		c := ctr(name)
		c.State = Running
		return c
	}
	n.Synchronize([]*Sandbox{sb, {ID: "plain"}}, []*Container{running("a"), running("b")})
	if len(n.peek().pods) != 1 || len(n.peek().groups) != 1 {
		t.Errorf("pods %v, groups %v, want one each", n.peek().pods, n.peek().groups)
	}
	if n.peek().pods["sb1"].containers["id-a"] != known || !known.mayRun() {
		t.Error("a container that was known is another one now, or does not run")
	}
	n.pass(t.Context())
	for cg, want := range map[string]blkio.Amount{cgroupOf("a"): 1 << 20, cgroupOf("b"): 1 << 20, podCgroup: 2 << 20} {
		if got := limit(t, n, cg)[blkio.Wbps]; got != want {
			t.Errorf("%s has %v, want %v", cg, got, want)
		}
	}
	n.Synchronize([]*Sandbox{sb}, []*Container{running("b")})
	if _, ok := n.peek().pods["sb1"].containers["id-a"]; ok {
		t.Error("a container that is not listed is still there")
	}
}

// TestCreatedAgain verifies that a late event of a container that was created again under the same ID does not
// change its successor.
func TestCreatedAgain(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	var made []*container
	for range 2 {
		if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
			t.Fatal(err)
		}
		made = append(made, n.peek().pods["sb1"].containers["id-a"])
	}
	n.pods.noteRunning(made[0].identity)
	if now := n.peek().pods["sb1"].containers["id-a"]; made[0] == made[1] || now != made[1] || now.life.Phase() != lifecycle.Created {
		t.Errorf("the pod has %p, want %p in phase %v", now, made[1], lifecycle.Created)
	}
	if got := scrape(t, n)["unexpected_events_total"]; got != 0 {
		t.Errorf("%v unexpected events", got)
	}
}

// TestStartWasMissed verifies that a container is found to run if the runtime sent StartContainer before the
// plugin connected.
func TestStartWasMissed(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	write(t, filepath.Join(dir, cgroupOf("a"), "cgroup.events"), "populated 1\nfrozen 0\n")
	n := newNode(t, h)
	c := ctr("a")
	c.State = Created
	n.Synchronize([]*Sandbox{sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})}, []*Container{c})
	n.pass(t.Context()) // resolves the container
	n.pass(t.Context()) // sees that it has a cgroup
	if got := limit(t, n, cgroupOf("a"))[blkio.Wbps]; got != 1<<20 {
		t.Errorf("the limit is %v, want 1 MiB/s", got)
	}
}

// TestObserveLiftsWhatTheRuntimeWroteBack verifies that no limits stay in observe mode when an update of
// resources writes those of the spec again.
func TestObserveLiftsWhatTheRuntimeWroteBack(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	if err := n.start(t.Context(), sb, ctr("a"), true); err != nil {
		t.Fatal(err)
	}
	observe := *policy.Default()
	observe.Mode = policy.ModeObserve
	n.Reload(&observe)
	n.pass(t.Context())
	write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
	n.Updated("sb1")
	n.pass(t.Context())
	if got := limit(t, n, cgroupOf("a"))[blkio.Wbps]; got != blkio.Max {
		t.Errorf("the limit is %v, want max", got)
	}
}

// TestRaiseBelow verifies that limits are also raised on the cgroup of crun, which keeps those of the spec.
func TestRaiseBelow(t *testing.T) {
	sub := cgroupOf("a") + "/container"
	h, dir := tree(t, podCgroup, cgroupOf("a"), sub)
	n := newNode(t, h)
	for _, cg := range []string{cgroupOf("a"), sub} {
		write(t, filepath.Join(dir, cg, "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
	}
	c := ctr("a")
	c.Unified = map[string]string{"io.max": "254:0 wbps=1048576"}
	if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=2Mi"}), c, true); err != nil {
		t.Fatal(err)
	}
	for _, cg := range []string{cgroupOf("a"), sub} {
		if got := limit(t, n, cg)[blkio.Wbps]; got != 2<<20 {
			t.Errorf("%s has %v, want 2 MiB/s", cg, got)
		}
	}
}

// TestHugeRecord verifies that limits are in force although their record is too large for any filesystem.
func TestHugeRecord(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.storage = disks{func(string) blkio.Backing {
		b := blkio.Backing{FSType: "btrfs"}
		for i := range 10000 {
			b.Disks = append(b.Disks, blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: uint32(i)}, Name: "vd"})
		}
		return b
	}}
	err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true)
	if err == nil {
		t.Error("a record that cannot be written: no error")
	}
	m, err := h.Cgroup(cgroupOf("a")).ReadIOMax()
	if err != nil || len(m) == 0 {
		t.Errorf("io.max is %v, %v", m, err)
	}
}

// TestResolutionFailed verifies that an I/O error of the node rejects no container. The known disks are limited, and
// the others follow.
func TestResolutionFailed(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	broken := true
	n.storage = disks{func(path string) blkio.Backing {
		if broken && strings.HasPrefix(path, "/mnt/data") {
			return blkio.Backing{FSType: "ext4", Reason: "this node failed to look", Err: errors.New("input/output error")}
		}
		return twoDisks(path)
	}}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi; /data wbps=2Mi"})
	c := ctr("a", bind("/mnt/data/a", "/data"))
	adjust, err := n.create(t.Context(), sb, c, false)
	if err != nil || adjust == nil {
		t.Fatalf("create: %v, %v", adjust, err)
	}
	if err := n.start(t.Context(), sb, c, true); err != nil {
		t.Fatal(err)
	}
	r, err := record.Read(h.Cgroup(cgroupOf("a")), record.KindContainer)
	if err != nil || len(r.Settings) != 1 || !strings.Contains(r.Error, "this node failed to look") {
		t.Errorf("record %+v, %v", r, err)
	}
	broken = false
	n.pass(t.Context())
	if r, err = record.Read(h.Cgroup(cgroupOf("a")), record.KindContainer); err != nil || len(r.Settings) != 2 || r.Error != "" {
		t.Errorf("record %+v, %v", r, err)
	}
}
