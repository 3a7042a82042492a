package enforce

import (
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

// WeightSupport is what the kernel makes of io.weight. It is safe for concurrent use.
type WeightSupport struct {
	Cgroups *cgroupfs.Hierarchy
	exists  atomic.Pointer[bool] // nil if there was no cgroup to look into
	works   atomic.Bool          // some disk has io.cost switched on
}

// has reports whether the kernel has io.weight. On a node without a container
// there is no cgroup to look into; then it is asked again, and the answer is
// yes: a runtime that meets no file fails the container, which is not silent.
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

// Look asks whether weights have any effect, and reports whether that is news.
func (w *WeightSupport) Look() bool {
	qos, err := w.Cgroups.ReadIOCostQOS()
	works := err != nil // unknown is no reason to warn
	for _, enabled := range qos {
		works = works || enabled
	}
	return w.works.Swap(works) != works
}

// Work reports whether weights had any effect at the last look.
func (w *WeightSupport) Work() bool { return w.works.Load() }

// Support returns what weights do on this node.
func (w *WeightSupport) Support() plan.Weights {
	return plan.Weights{Exist: w.has(), Work: w.works.Load()}
}
