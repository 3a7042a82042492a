package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// testSandboxReplaced verifies limits while a pod has two sandboxes, as after the kubelet has replaced its
// sandbox. Both are in one cgroup, and the container of the old one has ended.
func testSandboxReplaced(t *testing.T) {
	old := runSandbox(t, "pod", 0, annotations{limits + "pod-total": "/data wbps=1Mi"})
	k := old.run(sleeper("c", "/data", "ext4"))
	wantIOMax(t, old.Cgroup, limitedDisk)
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := runSandbox(t, "pod", 1, annotations{limits + "pod-total": "/data wbps=2Mi"})
	if next.Cgroup != old.Cgroup {
		t.Fatalf("the sandboxes have cgroups %s and %s, want one", old.Cgroup, next.Cgroup)
	}
	next.run(sleeper("c2", "/data", "ext4"))
	wantIOMax(t, next.Cgroup, disks{"vdb": "wbps=2097152"})
	staysIOMax(t, next.Cgroup, disks{"vdb": "wbps=2097152"})
	if err := old.RemoveSandbox(t.Context()); err != nil {
		t.Fatal(err)
	}
	staysIOMax(t, next.Cgroup, disks{"vdb": "wbps=2097152"})
}

// testForgedRecord verifies that a container that may write to the directory of its cgroup cannot have its
// limits cleared by a forged record. One case has a runtime that mounts cgroups writable, the other a user
// namespace that owns the directory.
func testForgedRecord(t *testing.T) {
	k := runPod(t, "pod", limited).run(sleeper("c", "/data", "ext4"))
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
		if err := cgroup.Dir(k.Cgroup).SetIOMax(node.disks["vdb"] + " wbps=max"); err != nil {
			t.Fatal(err)
		}
		awaitIOMax(t, k.Cgroup, limitedDisk)
	}
}

// TestObserveAfterUpdate verifies that the limits of the spec, which an update of a container writes again, are
// removed in mode observe.
func TestObserveAfterUpdate(t *testing.T) {
	file := policyFile(t, "mode: enforce\n")
	p := startPlugin(t, "--policy", file)
	cfg := sleeper("c", "/data", "ext4")
	cfg.Memory = 64 * mib
	k := runPod(t, "pod", limited).run(cfg)
	wantIOMax(t, k.Cgroup, limitedDisk)
	writePolicy(t, file, "mode: observe\n")
	p.await(t, logReloaded, 1)
	awaitUnlimited(t, k.Cgroup)
	if err := k.Update(t.Context(), cri.Resources{CPUQuota: 50_000, Memory: 128 * mib}); err != nil {
		t.Fatal(err)
	}
	wantFile(t, k.Cgroup, "cpu.max", "50000 100000")
	awaitUnlimited(t, k.Cgroup)
}

// awaitUnlimited waits until a cgroup has no limits, nor one below it: crun has
// its processes in one there, with the limits of the spec.
func awaitUnlimited(t *testing.T, dir string) {
	t.Helper()
	awaitIOMax(t, dir, nil)
	children, err := filepath.Glob(filepath.Join(cgroup.Root, dir, "*", "io.max"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		rel, err := filepath.Rel(cgroup.Root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		awaitIOMax(t, rel, nil)
	}
}
