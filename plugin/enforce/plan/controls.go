package plan

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Controls describes the effect of io.max and io.weight on this node.
type Controls struct {
	Missing []string           // those that the kernel does not have
	Enabled map[blkio.Dev]bool // the disks with io.cost enabled; nil if they are not known
	// BFQ has the disks on which weights of this program work. The value is true if bfq divides the disk, by other files than io.weight.
	BFQ map[blkio.Dev]bool
}

// Work reports whether weights may have an effect on some disk.
func (c Controls) Work() bool { return c.Enabled == nil || len(c.Enabled) > 0 || len(c.BFQ) > 0 }

// effective returns the settings that can be written. The kernel refuses the weight of a single
// disk before io.cost is set up on it. A kernel without io.weight can have bfq.
func (c Controls) effective(s policy.Settings) policy.Settings {
	return s.Where(func(x policy.Setting) bool { return (x.Key != blkio.DiskWeight || c.Enabled[x.Dev]) && c.HasFile(x) })
}

// HasFile reports whether the kernel has the control file of a setting, as far as that is known.
func (c Controls) HasFile(s policy.Setting) bool { return !slices.Contains(c.Missing, s.File()) }

// warnings returns where a weight has no effect.
func (c Controls) warnings(d *policy.Desired) []string {
	switch {
	case c.Enabled == nil || len(d.Settings.In(blkio.IOWeight)) == 0:
		return nil
	case !c.Work():
		return []string{weightIdle}
	}
	var out []string
	for _, disk := range d.Weighted {
		if !c.Enabled[disk.Dev] && !c.BFQ[disk.Dev] {
			out = append(out, "the weight has no effect on "+disk.String()+": io.cost is not enabled there")
		}
	}
	return out
}

// weightIdle is the warning for a weight that the kernel takes and ignores (docs/explanation/weights.md). Enabling
// io.cost is the operator's choice, because it turns off wbt on the disk.
const weightIdle = "io.weight has no effect on this node: no disk has io.cost.qos enabled"
