package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// WeightEffect is the effect of a weight on one physical disk of the node.
type WeightEffect struct {
	Container string `json:"container,omitempty"` // "" for the pod as a whole
	Disk      string `json:"disk"`
	Weight    uint32 `json:"weight"`
	// State and Model are the state of io.cost, as Disk.State, and the origin of its model.
	State  string `json:"state,omitempty"`
	Model  string `json:"model,omitempty"`
	Reason string `json:"reason,omitempty"` // why the weight has no effect, or why that is unknown
}

// Disk describes io.cost on a physical disk of a node, as run would decide.
type Disk struct {
	Name    string
	Stacked bool   // io.cost works on the disks below
	Origin  string // of the model in force, or of the one that would be
	Guess   bool   // the model is the kernel's, which is not about this disk
	// State is "on", "on demand", "no" or "unknown". Reason is why run does not enable io.cost.
	State, Reason string
}

func (o *outcome) weigh(total *policy.Desired) {
	if o.Node.Storage == nil || o.Node.Disks == nil {
		return
	}
	for i := range o.running {
		d := &o.running[i].Desired
		for _, disk := range d.Weighted {
			o.addEffect(o.running[i].Name, disk, d.Settings.IOWeight())
		}
	}
	o.noteNetwork()
	for _, disk := range total.Weighted {
		o.addEffect("", disk, total.Settings.IOWeight())
	}
}

func (o *outcome) addEffect(container string, disk blkio.Disk, weights blkio.Weights) {
	e := WeightEffect{Container: container, Disk: disk.Name, Weight: weights.On(disk.Dev)}
	if e.Weight == 0 {
		return
	}
	d, known := o.Node.Disks[disk.Dev]
	switch {
	case len(o.running) == 0:
		e.State, e.Reason = "no", "no container of the pod is created"
	case disk.Dev.IsUnknown():
		e.State, e.Reason = "unknown", "the disk is unknown until the volume is mounted"
	case !known:
		e.State, e.Reason = "no", "the disk is not there"
	case d.Reason == "":
		e.State, e.Model = d.State, d.Origin
		if d.Guess {
			o.result.Notes = append(o.result.Notes, disk.Name+": the model is the kernel's guess, so weights may divide it badly: calibrate the disk, or give its model in the node policy")
		}
	default:
		e.State, e.Reason = d.State, d.Reason
	}
	o.result.Weights = append(o.result.Weights, e)
}

func (o *outcome) noteNetwork() {
	for i := range o.running {
		c := &o.running[i]
		if _, asked := c.Desired.Settings.Weight(); !asked {
			continue
		}
		facts := o.pod.Seen[slices.IndexFunc(o.pod.Seen, func(s policy.Container) bool { return s.Name == c.Name })]
		for _, m := range facts.Mounts {
			if !m.Injected && strings.Contains(m.Backing.Reason, "network filesystem") {
				o.result.Notes = append(o.result.Notes, fmt.Sprintf("container %s: the weight has no effect on %s: %s", c.Name, quote.Name(m.Destination, quote.Most), m.Backing.Reason))
			}
		}
	}
}

// guarantees returns notes on what the class or namespace of a pod is guaranteed, and on the disks of the node where it is not.
func (c *Checker) guarantees(namespace string, pod *policy.Pod) (notes []string) {
	b := pod.WeightBudget()
	if b.Guarantee == 0 {
		return nil
	}
	group := "namespace " + namespace
	if b.Class != "" {
		group = "class " + b.Class
	}
	notes = append(notes, fmt.Sprintf("%s is guaranteed %s of each disk with io.cost (%s)", group, b.Guarantee.Short(), c.Policy.Promised()))
	var without []string
	for _, d := range c.Node.Disks {
		if d.Reason != "" && !d.Stacked {
			without = append(without, d.Name+": "+d.Reason)
		}
	}
	if slices.Sort(without); len(without) > 0 {
		notes = append(notes, "no guarantee on "+strings.Join(without, "; "))
	}
	return notes
}

// noteWeightBudget adds a note on what the weights of the pod are worth under the budget for its namespace.
func (o *outcome) noteWeightBudget(total *policy.Desired) {
	most := o.pod.Policy.WeightBudget().Weight
	if most == 0 || len(o.running) == 0 {
		return
	}
	disks := map[blkio.Dev]bool{{}: true} // the zero device has the weight of all disks
	for _, disk := range total.Weighted {
		disks[disk.Dev] = true
	}
	for i := range o.running {
		for _, disk := range o.running[i].Desired.Weighted {
			disks[disk.Dev] = true
		}
	}
	var sum uint64
	for dev := range disks {
		sum = max(sum, o.weightOn(dev, total.Settings.IOWeight()))
	}
	effect := "above that, weights are scaled down"
	if sum > uint64(most) {
		effect = fmt.Sprintf("the pod alone is scaled down to %d", most)
	}
	o.result.Notes = append(o.result.Notes, fmt.Sprintf("a weight of %d counts for the budget of namespace %s: %d for all of its pods that use a disk, and %s",
		sum, o.pod.Namespace, most, effect))
}

// weightOn returns the weight of the pod beside others on a disk. All its containers are taken to use the disk: the disks of those
// without a weight are not searched for.
func (o *outcome) weightOn(dev blkio.Dev, ofPod blkio.Weights) (sum uint64) {
	if whole := ofPod.On(dev); whole != 0 {
		return uint64(whole)
	}
	for i := range o.running {
		sum += uint64(cmp.Or(o.running[i].Desired.Settings.IOWeight().On(dev), blkio.DefaultWeight))
	}
	return sum
}
