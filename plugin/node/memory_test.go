package node

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestMemoryLimitBoundsDirtyPages verifies that a memory limit that is large beside the node's memory does not
// keep the guard and the warning away.
func TestMemoryLimitBoundsDirtyPages(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct {
		name      string
		limit     int64
		high, pod string // memory.high of the spec, memory.max of the pod
		guarded   bool
	}{
		{"none", 0, "", "max", true},
		{"small", 2 * gi, "", "max", false},
		{"64Ti", 64 << 40, "", "max", true},
		{"64Ti in a small pod", 64 << 40, "", "2147483648", false},
		{"64Ti in a large pod", 64 << 40, "", "70368744177664", true},
		{"high is max", 0, "max", "max", true},
		{"high is large", 0, "70368744177664", "max", true},
		{"high is small", 0, "1073741824", "max", false},
	} {
		h, dir := tree(t, podCgroup)
		write(t, filepath.Join(dir, podCgroup, "memory.max"), tt.pod+"\n")
		n := newNode(t, h)
		n.nodeMemory = 8 * gi
		sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
		c := ctr("db")
		c.MemoryMax = tt.limit
		if tt.high != "" {
			c.Unified = map[string]string{"memory.high": tt.high}
		}
		if _, err := n.create(t.Context(), sb, c, true); err != nil {
			t.Fatal(err)
		}
		warned := slices.Contains(n.peek().pods["sb1"].containers["id-db"].decision.desired.WarningKinds, policy.NoMemoryLimit)
		if warned != tt.guarded {
			t.Errorf("%s: warned %v, want %v", tt.name, warned, tt.guarded)
		}

		guard := *policy.Default()
		guard.Writeback.DirtyGuard = 64 << 20
		n.Reload(&guard)
		again := ctr("again")
		again.MemoryMax, again.Unified = c.MemoryMax, c.Unified
		adjust, err := n.create(t.Context(), sb, again, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Unified(adjust)["memory.high"]; (got != "") != tt.guarded {
			t.Errorf("%s: memory.high %q, want one: %v", tt.name, got, tt.guarded)
		}
	}
}
