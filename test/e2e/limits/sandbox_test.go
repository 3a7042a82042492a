package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// testSandboxReplaced verifies limits while a pod has two sandboxes, as after the kubelet has replaced its
// sandbox. Both are in one cgroup, and the container of the old one has ended.
func testSandboxReplaced(t *testing.T) {
	old := lab.RunSandbox(t, "pod", 0, lab.Annotations{lab.Limits + "pod-total": "/data wbps=1Mi"})
	k := old.MustRun(lab.Sleeper("c", "/data", "ext4"))
	lab.WantIOMax(t, old.Cgroup, lab.LimitedDisk)
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := lab.RunSandbox(t, "pod", 1, lab.Annotations{lab.Limits + "pod-total": "/data wbps=2Mi"})
	if next.Cgroup != old.Cgroup {
		t.Fatalf("the sandboxes have cgroups %s and %s, want one", old.Cgroup, next.Cgroup)
	}
	next.MustRun(lab.Sleeper("c2", "/data", "ext4"))
	lab.WantIOMax(t, next.Cgroup, lab.Disks{"vdb": "wbps=2097152"})
	lab.StaysIOMax(t, next.Cgroup, lab.Disks{"vdb": "wbps=2097152"})
	if err := old.RemoveSandbox(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.StaysIOMax(t, next.Cgroup, lab.Disks{"vdb": "wbps=2097152"})
}

// testForgedRecord verifies that a container that may write to the directory of its cgroup cannot have its
// limits cleared by a forged record. One case has a runtime that mounts cgroups writable, the other a user
// namespace that owns the directory.
func testForgedRecord(t *testing.T) {
	k := lab.RunPod(t, "pod", lab.Limited).MustRun(lab.Sleeper("c", "/data", "ext4"))
	dir := filepath.Join(cgroup.Root, k.Cgroup)
	text, err := cgroup.Dir(k.Cgroup).Record()
	if err != nil || !strings.HasPrefix(text, "{") {
		t.Fatalf("record %q, %v", text, err)
	}
	forged := `{"cleared":true,` + text[1:]
	for _, owner := range []int{0, 1000} {
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(dir, "user.nri-blkio", []byte(forged), 0); err != nil {
			t.Fatal(err)
		}
		if err := cgroup.Dir(k.Cgroup).SetIOMax(lab.Node.Disks["vdb"] + " wbps=max"); err != nil {
			t.Fatal(err)
		}
		lab.AwaitIOMax(t, k.Cgroup, lab.LimitedDisk)
	}
}

// TestObserveAfterUpdate verifies that the limits of the spec, which an update of a container writes again, are
// removed in mode observe.
func TestObserveAfterUpdate(t *testing.T) {
	file := lab.PolicyFile(t, "mode: enforce\n")
	p := lab.StartPlugin(t, "--policy", file)
	cfg := lab.Sleeper("c", "/data", "ext4")
	cfg.Memory = 64 * lab.MiB
	k := lab.RunPod(t, "pod", lab.Limited).MustRun(cfg)
	lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
	lab.WritePolicy(t, file, "mode: observe\n")
	p.Await(t, lab.LogReloaded, 1)
	awaitUnlimited(t, k.Cgroup)
	if err := k.Update(t.Context(), cri.Resources{CPUQuota: 50_000, Memory: 128 * lab.MiB}); err != nil {
		t.Fatal(err)
	}
	lab.WantFile(t, k.Cgroup, "cpu.max", "50000 100000")
	awaitUnlimited(t, k.Cgroup)
}

// awaitUnlimited waits until a cgroup has no limits, nor one below it: crun has
// its processes in one there, with the limits of the spec.
func awaitUnlimited(t *testing.T, dir string) {
	t.Helper()
	lab.AwaitIOMax(t, dir, nil)
	children, err := filepath.Glob(filepath.Join(cgroup.Root, dir, "*", "io.max"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		rel, err := filepath.Rel(cgroup.Root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		lab.AwaitIOMax(t, rel, nil)
	}
}
