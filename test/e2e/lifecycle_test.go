package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// limited is the limit in most of these tests, on /data, which is ext4.
var (
	limited     = annotations{limits + "containers": "/data wbps=1Mi"}
	limitedDisk = disks{"vdb": "wbps=1048576"}
	twiceDisk   = disks{"vdb": "wbps=2097152"} // the backstop of two
)

// TestKilled verifies that limits stay in force when the plugin is killed, and that the next instance limits
// the containers that started in between.
func TestKilled(t *testing.T) {
	first := startPlugin(t)
	pod := runPod(t, "pod", limited)
	before := pod.run(sleeper("before", "/data", "ext4"))
	wantIOMax(t, before.Cgroup, limitedDisk)

	first.kill(t)
	wantIOMax(t, before.Cgroup, limitedDisk)
	between := pod.run(sleeper("between", "/data", "ext4"))
	unstarted, err := pod.Create(t.Context(), sleeper("unstarted", "/data", "ext4"))
	if err != nil {
		t.Fatal(err)
	}
	// No instance runs that could limit it. If this check fails, the test cannot show anything.
	wantIOMax(t, between.Cgroup, nil)

	startPlugin(t)
	awaitIOMax(t, between.Cgroup, limitedDisk)
	awaitIOMax(t, pod.Cgroup, twiceDisk)
	wantIOMax(t, before.Cgroup, limitedDisk)
	// Created without the plugin and started with it: the limit is in force at the start.
	if err := unstarted.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIOMax(t, unstarted.Cgroup, limitedDisk)
}

// TestStopped verifies that a plugin that hangs may delay the limits of a container, but never prevents
// containers from starting.
func TestStopped(t *testing.T) {
	p := startPlugin(t)
	pod := runPod(t, "pod", limited)
	before := pod.run(sleeper("before", "/data", "ext4"))

	p.signal(t, syscall.SIGSTOP)
	began := time.Now()
	during := pod.run(sleeper("during", "/data", "ext4"))
	// The runtime drops a plugin after one timeout, not after one for each request.
	took := time.Since(began)
	t.Logf("with a hung plugin a container took %v to start, the runtime's timeout is %s", took, requestTimeout)
	if took > 30*time.Second {
		t.Errorf("with a hung plugin a container took %v to start", took)
	}
	wantIOMax(t, before.Cgroup, limitedDisk)

	p.signal(t, syscall.SIGCONT)
	awaitIOMax(t, during.Cgroup, limitedDisk)
	awaitIOMax(t, pod.Cgroup, twiceDisk)
	after := pod.run(sleeper("after", "/data", "ext4"))
	wantIOMax(t, after.Cgroup, limitedDisk)
}

// TestTwoInstances verifies that a second instance stands by. If both set io.max, each would make the creation
// of containers fail.
func TestTwoInstances(t *testing.T) {
	first := startPlugin(t)
	second := launch(t)
	second.await(t, logStandby, 1)
	pod := runPod(t, "pod", limited)
	wantIOMax(t, pod.run(sleeper("a", "/data", "ext4")).Cgroup, limitedDisk)

	first.kill(t)
	second.await(t, logServing, 1)
	wantIOMax(t, pod.run(sleeper("b", "/data", "ext4")).Cgroup, limitedDisk)
	wantIOMax(t, pod.Cgroup, twiceDisk)
}

// TestRuntimeRestarts verifies that limits are in force after a restart of the runtime, which closes the
// connection while containers keep running.
func TestRuntimeRestarts(t *testing.T) {
	p := startPlugin(t)
	pod := runPod(t, "pod", limited)
	before := pod.run(sleeper("before", "/data", "ext4"))

	restartRuntime(t)
	wantIOMax(t, before.Cgroup, limitedDisk)
	p.await(t, logServing, 2)
	wantIOMax(t, pod.run(sleeper("after", "/data", "ext4")).Cgroup, limitedDisk)
	wantIOMax(t, pod.Cgroup, twiceDisk)
	wantIOMax(t, before.Cgroup, limitedDisk)
}

func restartRuntime(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline) // in cleanups too
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", "restart", "containerd").CombinedOutput(); err != nil {
		t.Fatalf("restart containerd: %v: %s", err, out)
	}
	if err := node.cri.Ready(ctx); err != nil {
		t.Fatalf("containerd is not back: %v", err)
	}
}

// testEdited verifies that the plugin writes its values again after another program has changed them, and does
// not change values of other programs.
func testEdited(t *testing.T) {
	pod := runPod(t, "pod", limited)
	k := pod.run(sleeper("c", "/data", "ext4"))
	vdb, vdd := node.disks["vdb"], node.disks["vdd"]
	for _, line := range []string{vdb + " wbps=max", vdb + " wbps=4194304", vdb + " wbps=100000"} {
		for _, dir := range []string{k.Cgroup, pod.Cgroup} {
			if err := cgroup.Dir(dir).SetIOMax(line); err != nil {
				t.Fatal(err)
			}
		}
		awaitIOMax(t, k.Cgroup, limitedDisk)
		awaitIOMax(t, pod.Cgroup, limitedDisk)
	}
	for _, line := range []string{vdb + " riops=500", vdd + " wbps=5000000"} {
		if err := cgroup.Dir(k.Cgroup).SetIOMax(line); err != nil {
			t.Fatal(err)
		}
	}
	staysIOMax(t, k.Cgroup, disks{"vdb": "wbps=1048576 riops=500", "vdd": "wbps=5000000"})
}

// testSystemdReload verifies that a weight is in force again after daemon-reload, with which systemd writes its
// own weight.
func testSystemdReload(t *testing.T) {
	pod := runPod(t, "pod", annotations{limits + "containers": "/data wbps=1Mi", weight + "containers": "50"})
	k := pod.run(sleeper("c", "/data", "ext4"))
	if out, err := exec.CommandContext(t.Context(), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
		t.Fatalf("daemon-reload: %v: %s", err, out)
	}
	wantIOMax(t, k.Cgroup, limitedDisk)
	staysIOMax(t, pod.Cgroup, limitedDisk)
	wantIOMax(t, k.Cgroup, limitedDisk)
	if w, err := cgroup.Dir(k.Cgroup).Weight(); err != nil || w != 50 {
		t.Errorf("io.weight after daemon-reload is %d (%v), want 50", w, err)
	}
}

// testRefusedLeavesNothing verifies that a rejected container leaves nothing. The runtime sends Stop and Remove
// events for it, although it was never created, and the kubelet tries again without end.
func testRefusedLeavesNothing(t *testing.T) {
	pod := runPod(t, "pod", annotations{
		limits + "container.bad":  "/data wbps=1",
		limits + "container.good": "/data wbps=1Mi",
	})
	for range 3 {
		if _, err := pod.Create(t.Context(), sleeper("bad", "/data", "ext4")); err == nil {
			t.Fatal("created a container with a limit under the floor")
		}
	}
	left, err := pod.Containers(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("the runtime still has containers %v (%v)", left, err)
	}
	staysIOMax(t, pod.Cgroup, nil)
	if record, err := cgroup.Dir(pod.Cgroup).Record(); err != nil || record != "" {
		t.Errorf("record on the pod: %q (%v), want none", record, err)
	}
	k := pod.run(sleeper("good", "/data", "ext4"))
	wantIOMax(t, k.Cgroup, limitedDisk)
	wantIOMax(t, pod.Cgroup, limitedDisk)
}

// testUpdate verifies the limits after in-place updates, with which the runtime writes the values of the OCI
// spec again and systemd its own weight. The spec has one disk, and the cgroup has limits on two.
func testUpdate(t *testing.T) {
	pod := runPod(t, "pod", annotations{limits + "containers": "/data wbps=1Mi riops=100; rootfs wbps=2Mi", weight + "containers": "50"})
	want := disks{"vda": "wbps=2097152", "vdb": "wbps=1048576 riops=100"}
	cfg := sleeper("c", "/data", "ext4")
	cfg.Memory = 64 * mib
	k := pod.run(cfg)
	wantIOMax(t, k.Cgroup, want)
	awaitWeight50(t, k, "before an update")
	for i, r := range []cri.Resources{
		{CPUQuota: 50_000, Memory: 128 * mib}, {CPUQuota: 80_000, Memory: 128 * mib}, {CPUQuota: 80_000, Memory: 96 * mib},
	} {
		if err := k.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		wantFile(t, k.Cgroup, "memory.max", fmt.Sprint(r.Memory))
		wantFile(t, k.Cgroup, "cpu.max", fmt.Sprintf("%d 100000", r.CPUQuota))
		if err := checkIOMax(k.Cgroup, want); err != nil {
			t.Errorf("after update %d: %v", i+1, err)
		}
		awaitWeight50(t, k, fmt.Sprint("after update ", i+1))
	}
	staysIOMax(t, k.Cgroup, want)
	awaitWeight50(t, k, "at the end")
}

// awaitWeight50 waits until the container's weight on all disks is 50: systemd may change it with an
// update, and the reconciler sets it again.
func awaitWeight50(t *testing.T, k *cri.Container, when string) {
	t.Helper()
	eventually(t, "io.weight "+when, func() error {
		w, err := cgroup.Dir(k.Cgroup).Weight()
		if err == nil && w != 50 {
			err = fmt.Errorf("io.weight is %d, want 50", w)
		}
		return err
	})
}

// TestTerminated verifies that limits stay in force when the plugin is terminated, as for an update.
func TestTerminated(t *testing.T) {
	p := startPlugin(t)
	pod := runPod(t, "pod", limited)
	k := pod.run(sleeper("c", "/data", "ext4"))
	p.signal(t, syscall.SIGTERM)
	if status := p.wait(t); status != 0 {
		t.Errorf("exit status %d after SIGTERM, want 0", status)
	}
	wantIOMax(t, k.Cgroup, limitedDisk)
	wantIOMax(t, pod.Cgroup, limitedDisk)
}
