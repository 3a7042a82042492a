package plan

import "github.com/nri-blkio/nri-blkio/policy"

// Weights describes the effect of io.weight on this node.
type Weights struct {
	Exist bool // the kernel has io.weight
	Work  bool // io.cost is enabled on a disk
}

// weightIdle is the warning for a weight that the kernel takes and ignores
// (docs/reference/quirks.md): enabling io.cost is the operator's choice, since it turns off
// wbt on the disk.
const weightIdle = "io.weight has no effect on this node: no disk has io.cost.qos enabled"

// Check removes a weight from d if the kernel has no io.weight, and returns the error about
// it.
func (w Weights) Check(d *policy.Desired) error {
	if _, asked := d.Settings.Weight(); !asked || w.Exist {
		return nil
	}
	return d.DropWeight()
}
