package check

import (
	"fmt"
	"math"
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
	// BesideOne is the share of the disk, from 0 to 1, while only one other container uses it, which
	// has the default weight. 0 if the weight has no effect.
	BesideOne float64 `json:"besideOne,omitempty"`
	// AtLeast is the share while all Rivals use the disk, and all containers of the pod: those that
	// have used it since they started. 0 if that is unknown.
	AtLeast float64 `json:"atLeast,omitempty"`
	Rivals  int     `json:"rivals,omitempty"`
	// State and Model are the state of io.cost, as Disk.State, and the origin of its model.
	State  string `json:"state,omitempty"`
	Model  string `json:"model,omitempty"`
	Reason string `json:"reason,omitempty"` // why the weight has no effect, or why that is unknown
}

// Joining is a pod that would join those on the node, with its weights on one disk.
type Joining struct {
	Weight     uint32   // of the pod as a whole, 0 if it follows from those of its containers
	Containers []uint32 // each at least 1
	Budget     policy.WeightBudget
}

// Shares has the shares of a joining pod on one disk.
type Shares struct {
	BesideOne, AtLeast PodShares
	Rivals             int
}

// PodShares has the shares of a pod and of its containers, from 0 to 1.
type PodShares struct {
	Pod        float64
	Containers []float64 // nil if they are unknown
}

// weigh adds the effect of each weight of the containers that run together, and of the pod's.
func (o *outcome) weigh(total *policy.Desired) {
	if o.Node.Storage == nil || o.Node.Share == nil {
		return
	}
	ofPod := total.Settings.IOWeight()
	for i := range o.running {
		d := &o.running[i].Desired
		for _, disk := range d.Weighted {
			o.addEffect(o.running[i].Name, disk, d.Settings.IOWeight(), func(s PodShares) float64 { return s.Containers[i] }, ofPod)
		}
	}
	o.noteNetwork()
	for _, disk := range total.Weighted {
		o.addEffect("", disk, ofPod, func(s PodShares) float64 { return s.Pod }, ofPod)
	}
}

// addEffect adds the effect of a weight on one disk.
func (o *outcome) addEffect(container string, disk blkio.Disk, weights blkio.Weights, share func(PodShares) float64, ofPod blkio.Weights) {
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
		s := o.shareOf(disk.Dev, ofPod)
		e.BesideOne, e.Rivals = rounded(share(s.BesideOne)), s.Rivals
		if s.AtLeast.Containers != nil {
			e.AtLeast = rounded(share(s.AtLeast))
		}
	default:
		e.State, e.Reason = d.State, d.Reason
	}
	o.result.Weights = append(o.result.Weights, e)
}

// shareOf returns the pod's shares on a disk. They are computed once for all containers, because a pod can have
// a thousand.
func (o *outcome) shareOf(dev blkio.Dev, ofPod blkio.Weights) Shares {
	s, found := o.shares[dev]
	if !found {
		if o.shares == nil {
			o.shares = map[blkio.Dev]Shares{}
		}
		s = o.Node.Share(dev, o.joining(dev, ofPod))
		if o.pod.Policy.Of().BoundsWeights() { // the namespaces of the others are not known here
			s.AtLeast, s.Rivals = PodShares{}, 0
		}
		o.shares[dev] = s
	}
	return s
}

// noteNetwork notes the volumes on network filesystems that a weight for all disks leaves out.
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

// rounded returns a share with the digits that count.
func rounded(share float64) float64 { return math.Round(share*1e4) / 1e4 }

// joining returns the weights of the pod on a disk. All containers of the pod are taken to use it:
// the disks of those without a weight are not searched for.
func (o *outcome) joining(dev blkio.Dev, ofPod blkio.Weights) Joining {
	out := Joining{Weight: ofPod.On(dev), Budget: o.pod.Policy.WeightBudget()}
	for i := range o.running {
		weight := o.running[i].Desired.Settings.IOWeight().On(dev)
		if weight == 0 {
			weight = blkio.DefaultWeight
		}
		out.Containers = append(out.Containers, weight)
	}
	return out
}

// sum returns the weight of the pod beside others.
func (j *Joining) sum() (sum uint64) {
	if j.Weight != 0 {
		return uint64(j.Weight)
	}
	for _, weight := range j.Containers {
		sum += uint64(weight)
	}
	return sum
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
		joining := o.joining(dev, total.Settings.IOWeight())
		sum = max(sum, joining.sum())
	}
	effect := "above that, weights are scaled down"
	if sum > uint64(most) {
		effect = fmt.Sprintf("the pod alone is scaled down to %d", most)
	}
	o.result.Notes = append(o.result.Notes, fmt.Sprintf("a weight of %d counts for the budget of namespace %s: %d for all of its pods that use a disk, and %s",
		sum, o.pod.Namespace, most, effect))
}
