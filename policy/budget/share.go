package budget

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Share is what one pod is granted of the budget for its namespace. Its containers have limits on devices, and so has the pod as a
// whole. A budget is one for physical disks. What a pod is granted on a device counts on each physical disk below it, and what it
// is granted on several devices of one physical disk adds up there. The zero value is a pod without a container.
type Share struct {
	// Undecided is true if nothing is known of one of the containers: it may have no limit on any disk.
	Undecided bool

	parts  []part // sorted by address
	lowest map[blkio.Dev][]blkio.Disk
	// isOwner is true if no container has the map lowest as well.
	isOwner bool
}

// part is what a pod is granted at the address of a device.
type part struct {
	blkio.Address
	name  string       // of the device, "" if it is unknown
	sum   blkio.Amount // of the limits of the containers
	bound blkio.Amount // the limit of the pod as a whole; blkio.Max for none
}

// Portion is what a pod is granted at the address of a physical disk.
type Portion struct {
	blkio.Address
	Name    string       // of the disk, "" if it is unknown
	Granted blkio.Amount // counts for the budget
	Known   blkio.Amount // is less only if the pod is undecided, see Share.Undecided
	Sum     blkio.Amount // Known without the limits of the pod as a whole
}

// at returns the part of an address, which is valid until the next call.
func (s *Share) at(at blkio.Address) *part {
	i, found := s.find(at)
	if !found {
		if s.parts == nil {
			s.parts = make([]part, 0, 4) // mostly enough: each creation of a container adds up its pod
		}
		s.parts = slices.Insert(s.parts, i, part{Address: at, bound: blkio.Max})
	}
	return &s.parts[i]
}

func (s *Share) find(at blkio.Address) (int, bool) {
	return slices.BinarySearchFunc(s.parts, at, func(p part, at blkio.Address) int { return p.Compare(at) })
}

// Add adds what a container may use at the address of a device. d has the name of the device, if it is known.
func (s *Share) Add(at blkio.Address, amount blkio.Amount, d *policy.Desired) {
	p := s.at(at)
	if p.sum = Plus(p.sum, amount); p.name == "" {
		p.name = d.DiskName(at.Dev)
	}
}

// AddContainer adds a container.
func (s *Share) AddContainer(d *policy.Desired, b *policy.NamespaceBudget) {
	d.Charges(b, func(at blkio.Address, amount blkio.Amount) { s.Add(at, amount, d) })
	s.AddStack(d.Lowest)
}

// AddUndecided adds a container that is not decided yet, by what it and its pod as a whole were granted before. Its lowest disks are
// known, and other disks that it uses are not: it may have no limit there.
func (s *Share) AddUndecided(d *policy.Desired, own, total policy.Settings, b *policy.NamespaceBudget) {
	s.AddStack(d.Lowest)
	var known blkio.Limits
	for _, x := range own {
		if b.Has(x.Key) {
			s.Add(x.Address, x.Amount, d)
			known[x.Key] = x.Amount
		}
	}
	for k, most := range b.Limits {
		s.Undecided = s.Undecided || most != blkio.Unset && known[k] == blkio.Unset
	}
	for _, x := range total.Without(own) { // it has no limit of its own on these disks
		if b.Has(x.Key) {
			s.Add(x.Address, blkio.Max, d)
		}
	}
}

// AddStack adds the physical disks below devices, see Container.Lowest.
func (s *Share) AddStack(lowest map[blkio.Dev][]blkio.Disk) {
	switch {
	case len(lowest) == 0:
	case s.lowest == nil: // mostly it is the only one
		s.lowest = lowest
	default:
		if !s.isOwner {
			s.lowest, s.isOwner = maps.Clone(s.lowest), true
		}
		maps.Copy(s.lowest, lowest)
	}
}

// Bind sets the limit of the pod as a whole at the address of a device.
func (s *Share) Bind(at blkio.Address, most blkio.Amount) { s.at(at).bound = most }

// BindWhole sets the limits of the pod as a whole, by those of each of its sandboxes, and by those that stay where a sandbox has none.
// Of two sandboxes the higher limit counts: which of them is in force depends on where a container runs.
func (s *Share) BindWhole(sandboxes []policy.Settings, stay policy.Settings, b *policy.NamespaceBudget) {
	bind := func(limits policy.Settings) {
		for _, x := range limits {
			if !b.Has(x.Key) {
				continue
			}
			if most := highest(sandboxes, stay, x.Address); most != blkio.Max {
				s.Bind(x.Address, most)
			}
		}
	}
	bind(stay)
	for _, limits := range sandboxes {
		bind(limits)
	}
}

// highest returns the highest limit of some sandboxes at an address; blkio.Max for none.
func highest(sandboxes []policy.Settings, stay policy.Settings, at blkio.Address) (most blkio.Amount) {
	without := blkio.Max
	if s, found := stay.Get(at); found {
		without = s.Amount
	}
	if len(sandboxes) == 0 {
		return without
	}
	for _, limits := range sandboxes {
		if s, found := limits.Get(at); found {
			most = max(most, s.Amount)
		} else {
			most = max(most, without)
		}
	}
	return most
}

// bound returns the limit of the pod as a whole at the address of a device; blkio.Max for none.
func (s *Share) bound(at blkio.Address) blkio.Amount {
	if i, found := s.find(at); found {
		return s.parts[i].bound
	}
	return blkio.Max
}

// with returns the share of a pod with one more container, and with the limits of the pod as a whole that it brings.
func (s *Share) with(d *policy.Desired, total policy.Settings, b *policy.NamespaceBudget) Share {
	out := *s
	out.parts, out.isOwner = append(make([]part, 0, len(s.parts)+len(d.Settings)), s.parts...), false
	out.AddContainer(d, b)
	for _, x := range total {
		if b.Has(x.Key) {
			out.Bind(x.Address, x.Amount)
		}
	}
	return out
}

// below calls yield for each physical disk below a device, which is the device itself if it has none.
func (s *Share) below(dev blkio.Dev, name string, yield func(blkio.Disk)) {
	lowest := s.lowest[dev]
	if len(lowest) == 0 {
		yield(blkio.Disk{Dev: dev, Name: name})
	}
	for _, d := range lowest {
		yield(d)
	}
}

// Portions returns what the pod is granted on each physical disk, sorted by address. Disks on which it is granted nothing, and
// has no limit as a whole either, may be missing.
func (s *Share) Portions() []Portion {
	out := make([]Portion, 0, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		known, granted := min(p.sum, p.bound), min(p.sum, p.bound)
		if s.Undecided { // what is unknown of it is bounded by the limit of the pod alone
			granted = p.bound
		}
		s.below(p.Dev, p.name, func(d blkio.Disk) {
			out = append(out, Portion{blkio.Address{Key: p.Key, Dev: d.Dev}, d.Name, granted, known, p.sum})
		})
	}
	slices.SortFunc(out, func(a, b Portion) int { return a.Compare(b.Address) })
	last := 0
	for i := 1; i < len(out); i++ {
		if out[i].Address != out[last].Address {
			last++
			out[last] = out[i]
			continue
		}
		to := &out[last]
		to.Granted, to.Known, to.Sum = Plus(to.Granted, out[i].Granted), Plus(to.Known, out[i].Known), Plus(to.Sum, out[i].Sum)
	}
	return out[:min(len(out), last+1)]
}

// knownAt returns what is known to be granted at an address, by a list of Portions.
func knownAt(of []Portion, at blkio.Address) blkio.Amount {
	p, _ := portionAt(of, at)
	return p.Known
}

func portionAt(of []Portion, at blkio.Address) (_ Portion, found bool) {
	i, found := slices.BinarySearchFunc(of, at, func(p Portion, at blkio.Address) int { return p.Compare(at) })
	if !found {
		return Portion{}, false
	}
	return of[i], true
}

// Plus returns the sum of two amounts; blkio.Max if one of them is, or if it is too large.
func Plus(a, b blkio.Amount) blkio.Amount {
	if a > blkio.Max-b {
		return blkio.Max
	}
	return a + b
}
