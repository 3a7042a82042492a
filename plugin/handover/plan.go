package handover

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Plan is what is to be done when a container ends, as of the last look at it. What has to
// be synced is found at its end, see Writeout.Find: by then no caller waits.
type Plan struct {
	Limits  policy.Settings    // of io.max of its cgroup, to be lifted
	Limited map[blkio.Dev]bool // disks with a limit on writes, its own or the pod's
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

// IsEmpty reports whether no limit is on what the container writes.
func (p *Plan) IsEmpty() bool { return len(p.Limited) == 0 }
