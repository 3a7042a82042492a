package shares

import (
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Use is what a cgroup has done on a disk.
type Use struct {
	blkio.Stat
	// Weight is the part of the disk that the cgroup is due, relative to that of the other cgroups.
	Weight float64
}

// Look reads what has changed since the last look or pass.
func (k *Keeper) Look(now time.Time) error {
	if err := k.readTree(now); err != nil {
		return err
	}
	return k.findTopLevel(now)
}

// Uses returns what has been done on a disk, as of the last look or pass. It has containers and, outside pods, the cgroups
// directly below the root, by path.
func (k *Keeper) Uses(dev blkio.Dev) map[string]Use {
	out := map[string]Use{}
	add := func(c *cgroup, weight float64) {
		if stat, used := c.counters[dev]; used {
			out[c.Path()] = Use{stat, weight}
		}
	}
	for _, c := range k.topLevel.others {
		add(c, float64(c.weights.On(dev)))
	}
	fractions := map[string]float64{}
	if k.last != nil {
		for _, s := range k.last.shares[dev] {
			fractions[s.Path] = s.Fraction
		}
	}
	var visit func(c *cgroup, weight float64)
	visit = func(c *cgroup, weight float64) {
		if c.isLeaf {
			add(c, fractions[c.Path()]*weight)
		}
		for _, child := range c.children {
			visit(child, weight)
		}
	}
	for _, top := range k.top {
		weight := float64(blkio.DefaultWeight)
		first, _, _ := strings.Cut(top.Path(), "/")
		if c := k.topLevel.pods[first]; c != nil {
			weight = float64(c.weights.On(dev))
		}
		visit(top, weight)
	}
	return out
}
