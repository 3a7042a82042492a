package shares

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Attribute is the extended attribute of a cgroup that has weights of a Keeper. Its value has
// the device numbers, separated by blanks. The pod's directory also has the records of containers, as "user.nri-blkio.NAME".
const Attribute = "user.nri-blkio-shares"

// allEvery is how often a Keeper reads all cgroups again, to see weights that another program
// has changed. Systemd does so with each daemon-reload.
const allEvery = 30 * time.Second

// Keeper keeps the weights of the cgroups above containers, on some disks. It is not safe for
// concurrent use.
type Keeper struct {
	cgroups  *cgroupfs.Hierarchy
	control  *control
	bfq      *Keeper   // of the disks with bfq, nil before the first one
	top      []*cgroup // those above all pods; in general one
	read     time.Time // when all was read
	topLevel topLevel
	unread   unread
	last     *division // nil if the next pass has to set all weights
}

// unread has the cgroups outside pods that could not be read.
type unread struct {
	above    []Skipped // on the way to those above all pods; set by findTop
	topLevel []Skipped // directly below the root; set by findTopLevel
}

// division is the result of a pass, and the facts that it is based on.
type division struct {
	top    []*cgroup
	disks  []blkio.Dev
	given  map[string]blkio.Weights
	budget map[string]Budget
	active map[blkio.Dev][]*cgroup // those that used each disk
	shares map[blkio.Dev][]Share
	used   map[blkio.Dev][]BudgetUse
	failed map[blkio.Dev]error // those on which a weight could not be set
}

// sameCgroups reports whether other is a division of the same cgroups with the same weights, where
// none has changed.
func (d *division) sameCgroups(other *division) bool {
	return slices.Equal(d.top, other.top) && slices.Equal(d.disks, other.disks) && maps.EqualFunc(d.given, other.given, blkio.Weights.Equal) &&
		maps.Equal(d.budget, other.budget)
}

// Demand has the facts from which the weights of cgroups follow.
type Demand struct {
	Disks []blkio.Dev // those with io.cost enabled
	BFQ   []blkio.Dev // those that bfq divides instead
	// Given has the weights of containers, and of pods that have one as a whole, by path. Other containers have
	// the weight in io.weight.
	Given map[string]blkio.Weights
	// Budgets has the budgets of pods, by path.
	Budgets map[string]Budget
	// Reserve is the share of each disk for everything outside pods; 0 leaves the weights at the
	// root of the tree as they are.
	Reserve blkio.Percent
}

// Write writes a line to a control file of a cgroup, as [cgroupfs.Cgroup.Write] does. A disk that
// hangs can keep a write for ever, so the caller may bound it.
type Write func(c cgroupfs.Cgroup, line blkio.Line) error

// NewKeeper returns a Keeper for the pods of a node.
func NewKeeper(cgroups *cgroupfs.Hierarchy, write Write) *Keeper {
	return &Keeper{cgroups: cgroups, control: ofCost(write)}
}

// Result is what a pass has found and done.
type Result struct {
	Shares map[blkio.Dev][]Share     // nil if the cgroups of pods could not be read
	Used   map[blkio.Dev][]BudgetUse // by namespace
	// Squeezed has the disks of which pods have less than the reserve leaves, because cgroups outside pods have large weights.
	Squeezed map[blkio.Dev]bool
	Failed   map[blkio.Dev]error // why some weights on a disk could not be set: the first error
	Skipped  []Skipped           // the cgroups that could not be read
}

// Pass sets the weights of all pods and QoS classes by the cgroups that were active since the last pass. It
// sets as many weights as it can. A disk on which nothing has changed is not computed again, because a node can
// have hundreds of disks, each of which is used by one pod. The first pass cannot see which cgroups are active. With budgets it sets no
// weights, because it would give each pod the whole budget after a restart.
func (k *Keeper) Pass(now time.Time, d Demand) (Result, error) {
	out, err := k.pass(now, d)
	if len(d.BFQ) == 0 {
		k.bfq = nil
		return out, err
	}
	return out, errors.Join(err, k.passBFQ(now, d, &out))
}

// pass is Pass for the disks of one control file.
func (k *Keeper) pass(now time.Time, d Demand) (Result, error) {
	waits := k.read.IsZero() && len(d.Budgets) > 0 && len(d.Disks) > 0
	if err := k.readTree(now); err != nil {
		return Result{}, fmt.Errorf("read the cgroups of pods: %w", err)
	}
	next := &division{
		top: k.top, disks: slices.Clone(d.Disks), given: maps.Clone(d.Given), budget: maps.Clone(d.Budgets),
		active: map[blkio.Dev][]*cgroup{}, shares: map[blkio.Dev][]Share{}, used: map[blkio.Dev][]BudgetUse{}, failed: map[blkio.Dev]error{},
	}
	changed := false
	for _, top := range k.top {
		changed = top.active(now, next.active) || changed
	}
	all := changed || k.last == nil || !next.sameCgroups(k.last)
	want := map[string]map[blkio.Dev]uint32{}
	for _, dev := range d.Disks {
		if !all && k.last.failed[dev] == nil && slices.Equal(next.active[dev], k.last.active[dev]) {
			next.shares[dev], next.used[dev] = k.last.shares[dev], k.last.used[dev]
			continue
		}
		next.divide(dev, now, k.control.most, want)
	}
	next.noteUnkept()
	errs := k.reserve(now, d.Disks, d.Reserve)
	if (all || len(want) > 0) && !waits {
		for _, top := range k.top {
			errs = append(errs, top.setBelow(want, all)...)
		}
	}
	if k.last = next; waits {
		k.last = nil
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, blkio.ErrGone) })
	for _, err := range errs {
		on, isOnDisk := errors.AsType[*DiskError](err)
		if isOnDisk && next.failed[on.Dev] == nil {
			next.failed[on.Dev] = err
		}
		if !isOnDisk || !slices.Contains(next.disks, on.Dev) { // a weight could not be removed, or more than one disk has failed
			k.last = nil
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	errs = slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })
	skipped := k.skipped()
	return Result{next.shares, next.used, k.topLevel.squeezed, next.failed, skipped}, errors.Join(append(errs, skippedError(skipped))...)
}

func (k *Keeper) skipped() []Skipped {
	all := slices.Concat(k.unread.above, k.unread.topLevel)
	for _, top := range k.top {
		all = top.addSkipped(all)
	}
	return all
}

// noteUnkept adds the use of guarantees on the other disks, where weights have no effect.
func (d *division) noteUnkept() {
	for dev, active := range d.active {
		if slices.Contains(d.disks, dev) {
			continue
		}
		on := uses{}
		for _, c := range active {
			if b := d.budget[c.Path()]; b.Guarantee != 0 {
				on.of(b).Pods++
			}
		}
		d.used[dev] = on.sorted()
	}
}

// divide computes the shares of one disk, and adds the weights that follow to want, by path.
// most is the largest weight.
func (d *division) divide(dev blkio.Dev, now time.Time, most float64, want map[string]map[blkio.Dev]uint32) {
	roots := make([]Cgroup, len(d.top))
	for i, top := range d.top {
		roots[i] = top.onDisk(dev, now, d.given, d.budget)
	}
	d.shares[dev], d.used[dev] = distribute(most, roots...)
	for _, s := range d.shares[dev] {
		if want[s.Path] == nil {
			want[s.Path] = map[blkio.Dev]uint32{}
		}
		want[s.Path][dev] = s.Weight
	}
}

// readTree reads the cgroups that have changed, or all of them every allEvery.
func (k *Keeper) readTree(now time.Time) error {
	all := now.Sub(k.read) >= allEvery || len(k.top) == 0 // the first pod of a node makes it
	if all {
		if err := k.findTop(); err != nil {
			return err
		}
	}
	var found []*cgroup
	p := &pass{now: now}
	for _, top := range k.top {
		switch err := top.read(p, all); {
		case err == nil:
			found = append(found, top)
		case !isAway(err):
			return err
		}
	}
	k.top = found
	if all {
		k.read = now
	}
	return nil
}

func (k *Keeper) findTop() error {
	var found []*cgroup
	var skipped []Skipped
	var find func(c cgroupfs.Cgroup, depth int) error
	find = func(c cgroupfs.Cgroup, depth int) error {
		children, err := c.Children()
		if err != nil {
			return err
		}
		for _, child := range children {
			name := child.Path()[strings.LastIndexByte(child.Path(), '/')+1:]
			switch {
			case cgroupfs.IsKubepods(name):
				found = append(found, k.known(child))
			case depth < maxTopDepth:
				if err := find(child, depth+1); err != nil && !isAway(err) {
					skipped = append(skipped, Skipped{child.Path(), err})
				}
			}
		}
		return nil
	}
	if err := find(k.cgroups.Cgroup("."), 1); err != nil {
		return err
	}
	k.top, k.unread.above = found, skipped
	return nil
}

// maxTopDepth is the depth below the root to which the kubelet's cgroup of all pods is searched for. With
// --cgroup-root it is below another one.
const maxTopDepth = 3

func (k *Keeper) known(c cgroupfs.Cgroup) *cgroup {
	for _, top := range k.top {
		if top.Path() == c.Path() {
			return top
		}
	}
	return newCgroup(c, k.control)
}

// control is a control file of weights.
type control struct {
	file string
	// attribute has the disks whose weights a Keeper has set. It is "" for bfq: those of its disks count as set by a Keeper.
	attribute string
	disks     []blkio.Dev // with bfq
	write     Write
	most      float64 // the largest weight; the smallest is 1, and the default 100
	// ofContainers is true if a Keeper sets the weights of containers as well. In io.weight they are settings of their own.
	ofContainers bool
	// usage returns the use of a disk by a cgroup, in any unit.
	usage func(blkio.Stat) uint64
}

func ofCost(write Write) *control {
	return &control{
		file: blkio.IOWeight, attribute: Attribute, write: write, most: blkio.MaxWeight,
		usage: func(s blkio.Stat) uint64 { return s.CostUsage },
	}
}

// ofBFQ returns io.bfq.weight. bfq divides the bytes of a disk.
//
// Source: BFQ_MAX_WEIGHT in block/bfq-iosched.h.
func ofBFQ(write Write, disks []blkio.Dev) *control {
	return &control{file: blkio.IOBFQWeight, disks: disks, write: write, most: 1000, ofContainers: true, usage: blkio.Stat.Bytes}
}

// passBFQ makes a pass over the disks with bfq, and adds its result. Once the disks change, it begins anew: the kernel has no weights on a
// disk that has been given to bfq again.
func (k *Keeper) passBFQ(now time.Time, d Demand, out *Result) error {
	if k.bfq == nil || !slices.Equal(d.BFQ, k.bfq.control.disks) {
		k.bfq = &Keeper{cgroups: k.cgroups, control: ofBFQ(k.control.write, slices.Clone(d.BFQ))}
	}
	d.Disks = k.bfq.control.disks
	r, err := k.bfq.pass(now, d)
	if out.Shares == nil { // the tree could not be read
		return err
	}
	for _, dev := range d.Disks {
		out.Shares[dev], out.Used[dev], out.Failed[dev] = r.Shares[dev], r.Used[dev], r.Failed[dev]
		if r.Squeezed[dev] && out.Squeezed != nil {
			out.Squeezed[dev] = true
		}
	}
	return err
}
