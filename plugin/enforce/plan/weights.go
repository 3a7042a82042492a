package plan

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Weights describes the effect of io.weight on this node.
type Weights struct {
	Exist   bool               // the kernel has io.weight
	Enabled map[blkio.Dev]bool // the disks with io.cost enabled; nil if they are not known
}

// Work reports whether weights may have an effect on some disk.
func (w Weights) Work() bool { return w.Enabled == nil || len(w.Enabled) > 0 }

// effective returns the settings that can be written. The kernel refuses the weight of a single
// disk before io.cost is set up on it.
func (w Weights) effective(s policy.Settings) policy.Settings {
	return s.Where(func(x policy.Setting) bool { return x.Key != blkio.DiskWeight || w.Enabled[x.Dev] })
}

// warnings returns where a weight has no effect.
func (w Weights) warnings(d *policy.Desired) []string {
	switch {
	case w.Enabled == nil || len(d.Settings.In(blkio.IOWeight)) == 0:
		return nil
	case len(w.Enabled) == 0:
		return []string{weightIdle}
	}
	var out []string
	for _, disk := range d.Weighted {
		if !w.Enabled[disk.Dev] {
			out = append(out, "the weight has no effect on "+disk.String()+": io.cost is not enabled there")
		}
	}
	return out
}

// weightIdle is the warning for a weight that the kernel takes and ignores (docs/explanation/weights.md). Enabling
// io.cost is the operator's choice, because it turns off wbt on the disk.
const weightIdle = "io.weight has no effect on this node: no disk has io.cost.qos enabled"
