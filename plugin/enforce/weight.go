package enforce

import (
	"maps"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

// WeightSupport finds out whether weights have an effect on this node. It is safe for
// concurrent use.
type WeightSupport struct {
	Cgroups *cgroupfs.Hierarchy
	exists  atomic.Pointer[bool] // nil as long as no cgroup has the io controller
	// enabled are the disks with io.cost enabled; nil if they are not known.
	enabled atomic.Pointer[map[blkio.Dev]bool]
}

// has reports whether the kernel has io.weight. On a node without containers no cgroup has
// the io controller, so that is unknown. Then has returns true, and the next call reads it
// again. If the kernel has no io.weight, the runtime fails the creation of the container,
// so no weight is dropped silently.
func (w *WeightSupport) has() bool {
	if known := w.exists.Load(); known != nil {
		return *known
	}
	exists, err := w.Cgroups.HasIOWeight()
	if err != nil {
		return true
	}
	w.exists.Store(&exists)
	return exists
}

// Refresh reads io.cost.qos of the root cgroup to find the disks that have io.cost enabled. It
// reports whether these disks differ from those of the last call. The first call reports true.
func (w *WeightSupport) Refresh() bool {
	qos, err := w.Cgroups.ReadIOCostQOS()
	var enabled map[blkio.Dev]bool // unknown is no reason to warn
	if err == nil {
		enabled = make(map[blkio.Dev]bool)
	}
	for dev, line := range qos {
		if line.Enabled {
			enabled[dev] = true
		}
	}
	before := w.enabled.Swap(&enabled)
	return before == nil || (*before == nil) != (enabled == nil) || !maps.Equal(*before, enabled)
}

// Work reports whether weights may have had an effect at the last call of Refresh.
func (w *WeightSupport) Work() bool { return w.Support().Work() }

// Support returns the effect of weights on this node.
func (w *WeightSupport) Support() plan.Weights {
	out := plan.Weights{Exist: w.has()}
	if enabled := w.enabled.Load(); enabled != nil {
		out.Enabled = *enabled
	}
	return out
}
