// Package shares turns the weights of containers into weights of the cgroups above them. A container's share of
// a disk then is its weight divided by the weights of all containers that use the disk, in any pod and QoS
// class.
//
// The kernel divides a disk at each level of the cgroup tree, among siblings that do I/O. So a cgroup gets the
// sum of the weights of the active containers below it. The sum of all would give the share of idle containers
// to their active neighbours in the same pod or QoS class.
//
// Distribute is pure. A Keeper reads the tree, and writes the results.
package shares

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Cgroup is a cgroup of the tree from the one above all pods down to the containers, as it is
// on one disk.
type Cgroup struct {
	Path string // below the cgroup root
	// Weight is the weight of a container, or of a pod that was given one as a whole, from 1 to 10000. It is 0
	// for a cgroup whose weight follows from its children.
	Weight uint32
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
	// Fraction of the disk, from 0 to 1, that the cgroup can use at least while all active cgroups ask for more
	// than they get. For an idle cgroup it is the fraction that it would get if only this cgroup became active.
	Fraction float64
	// Given is true for a weight that the caller has stated, which is in force already unless
	// it was scaled.
	Given bool
}

// Distribute returns the shares of all cgroups below root, parents before children, in the
// order of the tree. Root itself competes with cgroups outside of the tree; its weight is not
// decided here.
func Distribute(root Cgroup) []Share {
	return appendShares(nil, root.Children, 1)
}

// appendShares adds the shares of siblings, which divide a fraction of the disk, and of the cgroups below them.
func appendShares(out []Share, siblings []Cgroup, fraction float64) []Share {
	weights := make([]uint64, len(siblings))
	var active uint64
	for i := range siblings {
		weights[i] = siblings[i].due()
		if siblings[i].Active {
			active += weights[i]
		}
	}
	scale := scaleOf(weights)
	for i := range siblings {
		c := &siblings[i]
		rivals := active
		if !c.Active {
			rivals += weights[i]
		}
		s := Share{
			Path: c.Path, Weight: scale(weights[i]), Given: c.Weight != 0,
			Fraction: fraction * float64(weights[i]) / float64(rivals),
		}
		out = append(out, s)
		out = appendShares(out, c.Children, s.Fraction)
	}
	return out
}

// due returns the weight that a cgroup should have, which can exceed the kernel's largest. If no child is
// active, it is the largest weight of the children. One of them begins first, and must not have the weight of
// its idle siblings until the next pass.
func (c *Cgroup) due() uint64 {
	if c.Weight != 0 {
		return uint64(c.Weight)
	}
	var sum, largest uint64
	for i := range c.Children {
		due := c.Children[i].due()
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

// scaleOf returns how the weights of siblings fit into the kernel's range.
func scaleOf(weights []uint64) func(uint64) uint32 {
	largest := max(blkio.MaxWeight, slices.Max(append(weights, 0)))
	return func(weight uint64) uint32 {
		scaled := (weight*blkio.MaxWeight + largest/2) / largest
		return uint32(max(scaled, blkio.MinWeight))
	}
}
