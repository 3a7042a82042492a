package e2e

import (
	"testing"
)

// TestDirtyGuard verifies that, with writeback.dirtyGuard, a container with a write limit and without a memory
// limit gets a memory.high from its first instruction on, and that no other container gets one.
func TestDirtyGuard(t *testing.T) {
	startPlugin(t, "--policy", policyFile(t, "writeback: {dirtyGuard: 64Mi}\n"))
	pod := runPod(t, "pod", annotations{
		limits + "container.w": "/data wbps=1Mi", limits + "container.m": "/data wbps=1Mi", limits + "container.r": "/data rbps=1Mi",
	})
	memory := sleeper("m", "/data", "ext4")
	memory.Memory = memoryLimit
	guarded := pod.run(sleeper("w", "/data", "ext4"))
	wantFile(t, guarded.Cgroup, "memory.high", "67108864")
	wantIOMax(t, guarded.Cgroup, limitedDisk)
	wantFile(t, pod.run(memory).Cgroup, "memory.high", "max")
	wantFile(t, pod.run(sleeper("r", "/data", "ext4")).Cgroup, "memory.high", "max")
}
