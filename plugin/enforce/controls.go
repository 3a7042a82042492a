package enforce

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

// Controls finds out which controls have an effect on this node. It is safe for concurrent use.
type Controls struct {
	Cgroups *cgroupfs.Hierarchy
	missing atomic.Pointer[[]string] // nil as long as no cgroup has the io controller
	// enabled are the disks with io.cost enabled; nil if they are not known.
	enabled atomic.Pointer[map[blkio.Dev]bool]
	bfq     atomic.Pointer[map[blkio.Dev]bool] // plan.Controls.BFQ; nil before it is known
}

// Missing returns those of io.max and io.weight that the kernel does not have. On a node without containers no
// cgroup has the io controller, so that is unknown. Then Missing returns none, and the next call reads it
// again. If the kernel has no such file, the runtime fails the creation of the container, so no limit and no weight
// is dropped silently.
func (c *Controls) Missing() []string {
	if known := c.missing.Load(); known != nil {
		return *known
	}
	f, err := c.Cgroups.Probe()
	if err != nil || f.IOMax == blkio.Unknown {
		return nil
	}
	missing := f.Missing()
	c.missing.Store(&missing)
	return missing
}

// Refresh reads io.cost.qos of the root cgroup to find the disks that have io.cost enabled. It
// reports whether these disks differ from those of the last call. The first call reports true.
func (c *Controls) Refresh() bool {
	qos, err := c.Cgroups.ReadIOCostQOS()
	var enabled map[blkio.Dev]bool // unknown is no reason to warn
	if err == nil || errors.Is(err, blkio.ErrNotSupported) && slices.Contains(c.Missing(), blkio.IOWeight) {
		enabled = make(map[blkio.Dev]bool)
	}
	for dev, line := range qos {
		if line.Enabled {
			enabled[dev] = true
		}
	}
	before := c.enabled.Swap(&enabled)
	return before == nil || (*before == nil) != (enabled == nil) || !maps.Equal(*before, enabled)
}

// SetBFQ sets plan.Controls.BFQ.
func (c *Controls) SetBFQ(disks map[blkio.Dev]bool) { c.bfq.Store(&disks) }

// Work reports whether weights may have had an effect at the last call of Refresh.
func (c *Controls) Work() bool { return c.Effect().Work() }

// Effect returns the effect of controls on this node.
func (c *Controls) Effect() plan.Controls {
	out := plan.Controls{Missing: c.Missing()}
	if bfq := c.bfq.Load(); bfq != nil {
		out.BFQ = *bfq
	}
	if enabled := c.enabled.Load(); enabled != nil {
		out.Enabled = *enabled
	}
	return out
}
