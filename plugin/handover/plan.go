package handover

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Plan has the limits that a container's exit concerns, as of the last comparison of its cgroup. Writeout.Find
// finds the filesystems to sync at the exit, because no caller waits then.
type Plan struct {
	Limits  policy.Settings    // limits in io.max of its cgroup, which are lifted
	Limited map[blkio.Dev]bool // disks with a limit on writes, of the container or of the pod
}

// NewPlan returns the plan for a container and a pod with these settings.
func NewPlan(own, pod policy.Settings) Plan {
	limited := map[blkio.Dev]bool{}
	for _, all := range []policy.Settings{own, pod} {
		for _, s := range all {
			if s.LimitsWrites() {
				limited[s.Dev] = true
			}
		}
	}
	return Plan{own.In(blkio.IOMax), limited}
}

// IsEmpty reports whether no limit applies to the container's writes.
func (p *Plan) IsEmpty() bool { return len(p.Limited) == 0 }
