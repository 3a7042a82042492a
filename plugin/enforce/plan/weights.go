package plan

import "github.com/nri-blkio/nri-blkio/policy"

// Weights is what io.weight does on this node.
type Weights struct {
	Exist bool // the kernel has it
	Work  bool // some disk has io.cost switched on
}

// weightIdle is the warning for a weight that the kernel takes and ignores
// (docs/reference/quirks.md): enabling io.cost is the operator's choice, since it turns off
// wbt on the disk.
const weightIdle = "io.weight has no effect on this node: no disk has io.cost.qos enabled"

// Check takes out a weight that this kernel cannot hold, and returns the error for it.
func (w Weights) Check(d *policy.Desired) error {
	if _, asked := d.Settings.Weight(); !asked || w.Exist {
		return nil
	}
	return d.DropWeight()
}
