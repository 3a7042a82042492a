package shares

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// activeFor is how long a cgroup counts as active after its last I/O. A writer that waits for a
// queue of the disk, or for its own computation, between two operations is still a rival.
const activeFor = 5 * time.Second

// cgroup has the known facts about a cgroup. The tree begins at the cgroup above all pods, and ends at the
// containers.
type cgroup struct {
	cgroupfs.Cgroup
	control *control
	usage
	// weights is the control file. For a container it is read only if all is read.
	weights  blkio.Weights
	ours     *[]blkio.Dev // the disks whose weights a Keeper has set; nil before they are read
	children []*cgroup    // sorted by path; nil before the first read
	count    int          // of all children when they were listed last, or unlisted
	isLeaf   bool         // a container
	changed  bool         // true if weights or children have changed; set by read, cleared by active
	skipped  error        // why the last read by the parent failed; nil if it did not
}

// usage is the use of disks by a cgroup.
type usage struct {
	stat     string // the text of io.stat at the last read
	counters map[blkio.Dev]blkio.Stat
	used     map[blkio.Dev]time.Time // when its counters of a disk were last seen to have grown
}

// pass is one reading of the tree.
type pass struct {
	now time.Time
	// buf is for io.stat. Each cgroup keeps a copy of its text, which is shorter than any buffer.
	buf []byte
}

// read reads the changes in a cgroup and below it. A cgroup with unchanged counters has no active child, so
// nothing below it is read, unless all is true. The error is about the cgroup itself. The cgroups below it note
// their own errors.
func (c *cgroup) read(p *pass, all bool) error {
	text, err := c.ReadText("io.stat", p.buf)
	if err != nil {
		return err
	}
	p.buf = text
	fresh := c.children == nil
	if string(text) == c.stat && !fresh && !all {
		return nil
	}
	stat := string(text)
	counters, err := blkio.ParseIOStat(stat)
	if err != nil {
		return err
	}
	if !fresh { // at the first read every counter is new, which shows no use
		c.noteUse(counters, p.now)
	}
	c.stat, c.counters = stat, counters
	if fresh || all || !c.isLeaf {
		weights, err := c.ReadWeights(c.control.file)
		if err != nil && !errors.Is(err, blkio.ErrNotSupported) { // a kernel without weights: guarantees are not kept there
			return err
		}
		c.changed = c.changed || !weights.Equal(c.weights)
		c.weights = weights
	}
	return c.readBelow(p, all)
}

func (c *cgroup) noteUse(counters map[blkio.Dev]blkio.Stat, now time.Time) {
	for dev, stat := range counters {
		if stat != c.counters[dev] {
			c.used[dev] = now
		}
	}
}

// readBelow reads the children. It adds new ones and forgets removed ones. A child that cannot be read does not
// keep another one from being read. Its earlier facts are used until it is idle.
func (c *cgroup) readBelow(p *pass, all bool) error {
	if c.isLeaf {
		c.children = []*cgroup{}
		return nil
	}
	known, err := c.listed(all)
	if err != nil {
		return err
	}
	found := make([]*cgroup, 0, len(known))
	for _, child := range known {
		err := child.read(p, all || child.skipped != nil)
		if isAway(err) {
			c.count = unlisted // another one may come in its place
			continue
		}
		c.changed = c.changed || (err == nil) != (child.skipped == nil)
		child.skipped = err
		found = append(found, child)
	}
	c.changed = c.changed || !slices.Equal(found, c.children)
	c.children = found
	return nil
}

// isAway reports whether an error of read means that the cgroup was removed, or has no io controller yet. A
// read during the removal fails with ENODEV, even if the cgroup was created again since.
func isAway(err error) bool {
	return errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) || errors.Is(err, blkio.ErrNoDevice)
}

// isUnread reports whether nothing of the cgroup could be read yet.
func (c *cgroup) isUnread() bool { return c.children == nil }

func (c *cgroup) addSkipped(out []Skipped) []Skipped {
	for _, child := range c.children {
		if child.skipped != nil {
			out = append(out, Skipped{child.Path(), child.skipped})
		} else {
			out = child.addSkipped(out)
		}
	}
	return out
}

// active returns the cgroups that use each disk, from c downwards, and whether weights or children of
// one have changed since the last call.
func (c *cgroup) active(now time.Time, out map[blkio.Dev][]*cgroup) (changed bool) {
	changed, c.changed = c.changed, false
	for dev := range c.used {
		if c.uses(dev, now) {
			out[dev] = append(out[dev], c)
		}
	}
	for _, child := range c.children {
		changed = child.active(now, out) || changed
	}
	return changed
}

// uses reports whether the cgroup has used a disk lately.
func (c *cgroup) uses(dev blkio.Dev, now time.Time) bool {
	used, known := c.used[dev]
	return known && now.Sub(used) < activeFor
}

// listed returns the children. It lists them again if their number has changed, or if all is true.
func (c *cgroup) listed(all bool) ([]*cgroup, error) {
	count, err := c.CountChildren()
	if err != nil {
		return nil, err
	}
	if count == c.count && !all {
		return c.children, nil
	}
	children, err := c.Children()
	if err != nil {
		return nil, err
	}
	c.count = count
	byPath := make(map[string]*cgroup, len(c.children))
	for _, child := range c.children {
		byPath[child.Path()] = child
	}
	out := make([]*cgroup, len(children))
	for i, child := range children {
		if out[i] = byPath[child.Path()]; out[i] == nil {
			out[i] = newCgroup(child, c.control)
		}
	}
	slices.SortFunc(out, func(a, b *cgroup) int { return cmp.Compare(a.Path(), b.Path()) })
	return out, nil
}

// unlisted is a number of children that no cgroup has.
const unlisted = -1

func newCgroup(c cgroupfs.Cgroup, by *control) *cgroup {
	return &cgroup{Cgroup: c, control: by, usage: usage{used: map[blkio.Dev]time.Time{}}, count: unlisted, isLeaf: isContainer(c.Path())}
}

// isContainer reports whether the parent of a cgroup is a pod's. The cgroups below a container divide the
// container's share, and are not read.
func isContainer(p string) bool {
	return cgroupfs.PodUID(path.Dir(p)) != ""
}

// onDisk returns the tree as it is on one disk. given has the weights of containers, and of pods
// that have one as a whole. budgets has those of pods.
func (c *cgroup) onDisk(dev blkio.Dev, now time.Time, given map[string]blkio.Weights, budgets map[string]Budget) Cgroup {
	out := Cgroup{Path: c.Path(), Active: c.uses(dev, now), Budget: budgets[c.Path()]}
	weights, isGiven := given[c.Path()]
	if isGiven {
		out.Weight = weights.On(dev)
	}
	switch {
	case !c.isLeaf || out.Weight != 0:
	case c.control.ofContainers: // that of the disk is this program's
		out.Weight = c.weights.Default
	default: // or that of another program
		out.Weight = c.weights.On(dev)
	}
	for _, child := range c.children {
		if !child.isUnread() {
			below := child.onDisk(dev, now, given, budgets)
			out.Active = out.Active || below.Active // the child was read later, and may have begun in between
			out.Children = append(out.Children, below)
		}
	}
	return out
}

// Skipped is a cgroup that could not be read. Its weights, and those of all below it, stay as they are.
type Skipped struct {
	Path string // below the cgroup root
	Err  error
}

// skippedError returns a line with the first cgroup, and the number of the others. It is nil for none.
func skippedError(all []Skipped) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return errors.New(all[0].String())
	}
	return fmt.Errorf("%s (and %d more)", all[0], len(all)-1)
}

// String names the cgroup and the cause.
func (s Skipped) String() string {
	cause := s.Err.Error()
	if at, ok := errors.AsType[*cgroupfs.CgroupError](s.Err); ok {
		cause = at.Cause()
	}
	return fmt.Sprintf("skip cgroup %s: %s", s.Path, cause)
}

// Has reports whether a cgroup was skipped, by itself or with one above it.
func (s Skipped) Has(cgroup string) bool {
	return cgroup == s.Path || strings.HasPrefix(cgroup, s.Path+"/")
}

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
