package limits

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestKilled verifies that limits stay in force when the plugin is killed, and that the next instance limits
// the containers that started in between.
func TestKilled(t *testing.T) {
	first := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	before := pod.MustRun(lab.Sleeper("before", "/data", "ext4"))
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)

	first.Kill(t)
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
	between := pod.MustRun(lab.Sleeper("between", "/data", "ext4"))
	unstarted, err := pod.Create(t.Context(), lab.Sleeper("unstarted", "/data", "ext4"))
	if err != nil {
		t.Fatal(err)
	}
	// No instance runs that could limit it. If this check fails, the test cannot show anything.
	lab.WantIOMax(t, between.Cgroup, nil)

	lab.StartPlugin(t)
	lab.AwaitIOMax(t, between.Cgroup, lab.LimitedDisk)
	lab.AwaitIOMax(t, pod.Cgroup, lab.TwiceDisk)
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
	// Created without the plugin and started with it: the limit is in force at the start.
	if err := unstarted.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.WantIOMax(t, unstarted.Cgroup, lab.LimitedDisk)
}

// TestStopped verifies that a plugin that hangs may delay the limits of a container, but never prevents
// containers from starting.
func TestStopped(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	before := pod.MustRun(lab.Sleeper("before", "/data", "ext4"))

	p.Signal(t, syscall.SIGSTOP)
	began := time.Now()
	during := pod.MustRun(lab.Sleeper("during", "/data", "ext4"))
	// The runtime drops a plugin after one timeout, not after one for each request.
	took := time.Since(began)
	t.Logf("with a hung plugin a container took %v to start, the runtime's timeout is %s", took, lab.RequestTimeout)
	if took > 30*time.Second {
		t.Errorf("with a hung plugin a container took %v to start", took)
	}
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)

	p.Signal(t, syscall.SIGCONT)
	lab.AwaitIOMax(t, during.Cgroup, lab.LimitedDisk)
	lab.AwaitIOMax(t, pod.Cgroup, lab.TwiceDisk)
	after := pod.MustRun(lab.Sleeper("after", "/data", "ext4"))
	lab.WantIOMax(t, after.Cgroup, lab.LimitedDisk)
}

// TestTwoInstances verifies that a second instance stands by. If both set io.max, each would make the creation
// of containers fail.
func TestTwoInstances(t *testing.T) {
	first := lab.StartPlugin(t)
	second := lab.Launch(t)
	second.Await(t, lab.LogStandby, 1)
	pod := lab.RunPod(t, "pod", lab.Limited)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("a", "/data", "ext4")).Cgroup, lab.LimitedDisk)

	first.Kill(t)
	second.Await(t, lab.LogServing, 1)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("b", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, lab.TwiceDisk)
}

// TestRuntimeRestarts verifies that limits are in force after a restart of the runtime, which closes the
// connection while containers keep running.
func TestRuntimeRestarts(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	before := pod.MustRun(lab.Sleeper("before", "/data", "ext4"))

	lab.RestartRuntime(t)
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
	p.Await(t, lab.LogServing, 2)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("after", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, lab.TwiceDisk)
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
}

// testEdited verifies that the plugin writes its values again after another program has changed them, and does
// not change values of other programs.
func testEdited(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	vdb, vdd := lab.Node.Disks["vdb"], lab.Node.Disks["vdd"]
	for _, line := range []string{vdb + " wbps=max", vdb + " wbps=4194304", vdb + " wbps=100000"} {
		for _, dir := range []string{k.Cgroup, pod.Cgroup} {
			if err := cgroup.Dir(dir).SetIOMax(line); err != nil {
				t.Fatal(err)
			}
		}
		lab.AwaitIOMax(t, k.Cgroup, lab.LimitedDisk)
		lab.AwaitIOMax(t, pod.Cgroup, lab.LimitedDisk)
	}
	for _, line := range []string{vdb + " riops=500", vdd + " wbps=5000000"} {
		if err := cgroup.Dir(k.Cgroup).SetIOMax(line); err != nil {
			t.Fatal(err)
		}
	}
	lab.StaysIOMax(t, k.Cgroup, lab.Disks{"vdb": "wbps=1048576 riops=500", "vdd": "wbps=5000000"})
}

// testSystemdReload verifies that a weight is in force again after daemon-reload, with which systemd writes its
// own weight.
func testSystemdReload(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi", lab.Weight + "containers": "50"})
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	if out, err := exec.CommandContext(t.Context(), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
		t.Fatalf("daemon-reload: %v: %s", err, out)
	}
	lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
	lab.StaysIOMax(t, pod.Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
	if w, err := cgroup.Dir(k.Cgroup).Weight(); err != nil || w != 50 {
		t.Errorf("io.weight after daemon-reload is %d (%v), want 50", w, err)
	}
}

// testRefusedLeavesNothing verifies that a rejected container leaves nothing. The runtime sends Stop and Remove
// events for it, although it was never created, and the kubelet tries again without end.
func testRefusedLeavesNothing(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.bad":  "/data wbps=1",
		lab.Limits + "container.good": "/data wbps=1Mi",
	})
	for range 3 {
		if _, err := pod.Create(t.Context(), lab.Sleeper("bad", "/data", "ext4")); err == nil {
			t.Fatal("created a container with a limit under the floor")
		}
	}
	left, err := pod.Containers(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("the runtime still has containers %v (%v)", left, err)
	}
	lab.StaysIOMax(t, pod.Cgroup, nil)
	if record, err := cgroup.Dir(pod.Cgroup).Record(); err != nil || record != "" {
		t.Errorf("record on the pod: %q (%v), want none", record, err)
	}
	k := pod.MustRun(lab.Sleeper("good", "/data", "ext4"))
	lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, lab.LimitedDisk)
}

// testUpdate verifies the limits after in-place updates, with which the runtime writes the values of the OCI
// spec again and systemd its own weight. The spec has one disk, and the cgroup has limits on two.
func testUpdate(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi riops=100; rootfs wbps=2Mi", lab.Weight + "containers": "50"})
	want := lab.Disks{"vda": "wbps=2097152", "vdb": "wbps=1048576 riops=100"}
	cfg := lab.Sleeper("c", "/data", "ext4")
	cfg.Memory = 64 * lab.MiB
	k := pod.MustRun(cfg)
	lab.WantIOMax(t, k.Cgroup, want)
	awaitWeight50(t, k, "before an update")
	for i, r := range []cri.Resources{
		{CPUQuota: 50_000, Memory: 128 * lab.MiB}, {CPUQuota: 80_000, Memory: 128 * lab.MiB}, {CPUQuota: 80_000, Memory: 96 * lab.MiB},
	} {
		if err := k.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		lab.WantFile(t, k.Cgroup, "memory.max", fmt.Sprint(r.Memory))
		lab.WantFile(t, k.Cgroup, "cpu.max", fmt.Sprintf("%d 100000", r.CPUQuota))
		if err := lab.CheckIOMax(k.Cgroup, want); err != nil {
			t.Errorf("after update %d: %v", i+1, err)
		}
		awaitWeight50(t, k, fmt.Sprint("after update ", i+1))
	}
	lab.StaysIOMax(t, k.Cgroup, want)
	awaitWeight50(t, k, "at the end")
}

// awaitWeight50 waits until the container's weight on all disks is 50: systemd may change it with an
// update, and the reconciler sets it again.
func awaitWeight50(t *testing.T, k *cri.Container, when string) {
	t.Helper()
	lab.Eventually(t, "io.weight "+when, func() error {
		w, err := cgroup.Dir(k.Cgroup).Weight()
		if err == nil && w != 50 {
			err = fmt.Errorf("io.weight is %d, want 50", w)
		}
		return err
	})
}

// TestTerminated verifies that limits stay in force when the plugin is terminated, as for an update.
func TestTerminated(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	p.Signal(t, syscall.SIGTERM)
	if status := p.Wait(t); status != 0 {
		t.Errorf("exit status %d after SIGTERM, want 0", status)
	}
	lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, lab.LimitedDisk)
}
