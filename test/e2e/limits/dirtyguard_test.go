package limits

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestDirtyGuard verifies that, with writeback.dirtyGuard, a container with a write limit and without a memory
// limit gets a memory.high from its first instruction on, and that no other container gets one.
func TestDirtyGuard(t *testing.T) {
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, "writeback: {dirtyGuard: 64Mi}\n"))
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.w": "/data wbps=1Mi", lab.Limits + "container.m": "/data wbps=1Mi", lab.Limits + "container.r": "/data rbps=1Mi",
	})
	memory := lab.Sleeper("m", "/data", "ext4")
	memory.Memory = lab.MemoryLimit
	guarded := pod.MustRun(lab.Sleeper("w", "/data", "ext4"))
	lab.WantFile(t, guarded.Cgroup, "memory.high", "67108864")
	lab.WantIOMax(t, guarded.Cgroup, lab.LimitedDisk)
	lab.WantFile(t, pod.MustRun(memory).Cgroup, "memory.high", "max")
	lab.WantFile(t, pod.MustRun(lab.Sleeper("r", "/data", "ext4")).Cgroup, "memory.high", "max")
}
