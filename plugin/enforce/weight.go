package enforce

import (
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

// WeightSupport finds out whether weights have an effect on this node. It is safe for
// concurrent use.
type WeightSupport struct {
	Cgroups *cgroupfs.Hierarchy
	exists  atomic.Pointer[bool] // nil as long as no cgroup has the io controller
	works   atomic.Bool          // io.cost is enabled on a disk
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

// Look reads whether weights have an effect, and reports whether that has changed.
func (w *WeightSupport) Look() bool {
	qos, err := w.Cgroups.ReadIOCostQOS()
	works := err != nil // unknown is no reason to warn
	for _, enabled := range qos {
		works = works || enabled
	}
	return w.works.Swap(works) != works
}

// Work reports whether weights had an effect at the last Look.
func (w *WeightSupport) Work() bool { return w.works.Load() }

// Support returns the effect of weights on this node.
func (w *WeightSupport) Support() plan.Weights {
	return plan.Weights{Exist: w.has(), Work: w.works.Load()}
}
