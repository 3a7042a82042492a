// Package shares turns the weights of containers into weights of the cgroups above them. A container's share of
// a disk then is its weight divided by the weights of all containers that use the disk, in any pod and QoS
// class.
//
// The kernel divides a disk at each level of the cgroup tree, among siblings that do I/O. So a cgroup gets the
// sum of the weights of the active containers below it. The sum of all would give the share of idle containers
// to their active neighbours in the same pod or QoS class.
//
// A budget bounds the sum of the weights of a namespace's active pods. Above it, they are scaled down in proportion.
//
// distribute is pure. A Keeper reads the tree, and writes the results.
package shares

import (
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Cgroup is a cgroup of the tree from the one above all pods down to the containers, as it is
// on one disk.
type Cgroup struct {
	Path string // below the cgroup root
	// Weight is the weight of a container, or of a pod that was given one as a whole, from 1 to 10000. It is 0
	// for a cgroup whose weight follows from its children.
	Weight uint32
	Budget Budget // of a pod
	// Active is true if the cgroup, or one below it, has used the disk lately.
	Active   bool
	Children []Cgroup
}

// Share is the share of a cgroup on one disk.
type Share struct {
	Path string
	// Weight is the value for io.weight. It is right in proportion to the cgroup's siblings
	// only: where a sum exceeds the kernel's 10000, all siblings are scaled down alike.
	Weight uint32
	// Fraction of the disk, from 0 to 1, by Weight, that the cgroup can use at least while all active cgroups ask for more
	// than they get. For an idle cgroup it is the fraction that it would get if only this cgroup became active.
	Fraction float64
	// Factor is the factor by which a budget has scaled the weight of the cgroup, or of the pod above; 1 without one.
	Factor float64
}

// distribute returns the shares of all cgroups below roots, parents before children, in the
// order of the tree, and the use of budgets by namespace. A root itself competes with cgroups outside of the
// tree; its weight is not decided here. No weight is above most, the controller's maximum.
func distribute(most float64, roots ...Cgroup) ([]Share, []BudgetUse) {
	var out []Share
	used := usesOf(roots)
	for i := range roots {
		out = used.appendShares(out, most, roots[i].Children, Share{Fraction: 1, Factor: 1})
	}
	return out, used.sorted()
}

// appendShares adds the shares of siblings, which divide the share of their parent, and of the cgroups below them.
func (u uses) appendShares(out []Share, most float64, siblings []Cgroup, of Share) []Share {
	weights := make([]float64, len(siblings))
	for i := range siblings {
		weights[i] = u.due(&siblings[i])
	}
	scale, active := scaleOf(most, weights), 0.0
	for i := range siblings {
		if weights[i] = scale(weights[i]); siblings[i].Active {
			active += weights[i]
		}
	}
	for i := range siblings {
		c := &siblings[i]
		rivals := active
		if !c.Active {
			rivals += weights[i]
		}
		s := Share{
			Path: c.Path, Weight: uint32(weights[i]), Fraction: of.Fraction * weights[i] / rivals, Factor: of.Factor * u.factor(c, u.sum(c)),
		}
		if in := u[c.Budget]; c.Active && in != nil && in.Guarantee != 0 {
			in.Granted = min(in.Granted+s.Fraction*in.beyondReserve(), in.beyondReserve())
		}
		out = append(out, s)
		out = u.appendShares(out, most, c.Children, s)
	}
	return out
}

// due returns the weight that a cgroup should have, which can exceed the kernel's largest. Under a budget it need not be a whole
// number, and can be less than the kernel's smallest.
func (u uses) due(c *Cgroup) float64 {
	sum := u.sum(c)
	return sum * u.factor(c, sum)
}

// sum returns the weight of a cgroup without its own budget. If no child is
// active, it is the largest weight of the children. One of them begins first, and must not have the weight of
// its idle siblings until the next pass.
func (u uses) sum(c *Cgroup) float64 {
	if c.Weight != 0 {
		return float64(c.Weight)
	}
	var sum, largest float64
	for i := range c.Children {
		due := u.due(&c.Children[i])
		largest = max(largest, due)
		if c.Children[i].Active {
			sum += due
		}
	}
	switch {
	case sum > 0:
		return sum
	case largest > 0:
		return largest
	}
	return blkio.DefaultWeight // nothing below it
}

// precise is the least that a weight which is no whole number is scaled up to, if its siblings leave room for that. So rounding
// changes a budget by at most 1 %. With a larger one, a new pod would have less beside its siblings: until the next pass it has the
// kernel's default.
const precise = 50

// scaleOf returns how the weights of siblings fit into the kernel's range of whole numbers, up to kernelMost. All are multiplied by the same factor, a
// power of two where possible: then it seldom changes with the weights.
func scaleOf(kernelMost float64, weights []float64) func(float64) float64 {
	largest, smallest, factor := 1.0, math.Inf(1), 1.0
	for _, w := range weights {
		largest = max(largest, w)
		if math.Abs(w-math.Round(w)) > 1e-6 {
			smallest = min(smallest, w)
		}
	}
	most := kernelMost / largest
	for factor < most && factor*smallest < precise {
		factor *= 2
	}
	factor = min(factor, most)
	return func(weight float64) float64 { return max(math.Round(weight*factor), blkio.MinWeight) }
}
