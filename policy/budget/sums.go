package budget

import (
	"iter"
	"maps"
	"math/bits"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Sums has what the pods of a namespace are granted of its budget together. Thousands of pods may share a budget, and each creation
// of a container asks it while all other events wait. So the share of a pod is kept until the pod changes, and the sums change by the
// difference. They are the same as if all pods were added up. The pods are of type P.
type Sums[P comparable] struct {
	budget *policy.NamespaceBudget // the keys that it bounds are those of the sums
	shares map[P]*kept
	stale  map[P]bool // that have changed since their share was added
	total  map[blkio.Address]*sum
	// undecided are those of shares with Share.Undecided, which are not in total. unread are those with facts that were not read yet.
	undecided map[P]*kept
	unread    map[P]bool
}

// kept is what a pod is granted.
type kept struct {
	portions    []Portion
	isUndecided bool
}

// sum is what pods are granted together at an address of a physical disk.
type sum struct {
	name      string // of the disk, "" if it is unknown
	high, low uint64 // of the limited ones, in 128 bits: a sum that has reached its highest value could not be lowered again
	unlimited int    // pods that are granted blkio.Max
	pods      int    // that are granted something
}

func (s *sum) add(p *Portion) {
	s.pods++
	if p.Name != "" {
		s.name = p.Name
	}
	if p.Granted == blkio.Max {
		s.unlimited++
		return
	}
	var carry uint64
	s.low, carry = bits.Add64(s.low, uint64(p.Granted), 0)
	s.high += carry
}

func (s *sum) remove(p *Portion) {
	s.pods--
	if p.Granted == blkio.Max {
		s.unlimited--
		return
	}
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, uint64(p.Granted), 0)
	s.high -= borrow
}

func (s *sum) granted() Granted {
	if s.unlimited > 0 || s.high > 0 {
		return Granted{Amount: blkio.Max, Pods: s.pods}
	}
	return Granted{Amount: blkio.Amount(s.low), Pods: s.pods}
}

// SumsFor returns the sums for a budget: those of former, or new ones without a pod if former is nil or for other keys.
func SumsFor[P comparable](b *policy.NamespaceBudget, former *Sums[P]) (_ *Sums[P], isNew bool) {
	if former != nil && former.budget.Covers(b) && b.Covers(former.budget) {
		former.budget = b
		return former, false
	}
	return &Sums[P]{
		budget: b, shares: map[P]*kept{}, stale: map[P]bool{}, total: map[blkio.Address]*sum{},
		undecided: map[P]*kept{}, unread: map[P]bool{},
	}, true
}

// Changed has a pod added up again with the next Update. Each change of its share has to call it. It does nothing for nil.
func (x *Sums[P]) Changed(p P) {
	if x != nil {
		x.stale[p] = true
	}
}

// Forget removes a pod that has left. It does nothing for nil.
func (x *Sums[P]) Forget(p P) {
	if x != nil {
		delete(x.stale, p)
		x.remove(p)
	}
}

// Update adds up the pods that have changed by their shares. isUnread is true if facts that the share depends on were not read yet.
// Update leaves one pod out, which may be about to change back.
func (x *Sums[P]) Update(except P, share func(P, *policy.NamespaceBudget) (_ Share, isUnread bool)) {
	for p := range x.stale {
		if p == except {
			continue
		}
		delete(x.stale, p)
		x.remove(p)
		s, isUnread := share(p, x.budget)
		x.add(p, &s, isUnread)
	}
}

func (x *Sums[P]) add(p P, share *Share, isUnread bool) {
	added := &kept{portions: share.Portions(), isUndecided: share.Undecided}
	x.shares[p] = added
	if isUnread {
		x.unread[p] = true
	}
	if added.isUndecided {
		x.undecided[p] = added
		return
	}
	for i := range added.portions {
		if p := &added.portions[i]; p.Granted != 0 {
			to := x.total[p.Address]
			if to == nil {
				to = &sum{}
				x.total[p.Address] = to
			}
			to.add(p)
		}
	}
}

// remove is the inverse of add.
func (x *Sums[P]) remove(p P) {
	of := x.shares[p]
	if of == nil {
		return
	}
	delete(x.shares, p)
	delete(x.unread, p)
	if of.isUndecided {
		delete(x.undecided, p)
		return
	}
	for i := range of.portions {
		if p := &of.portions[i]; p.Granted != 0 {
			if from := x.total[p.Address]; from.pods == 1 {
				delete(x.total, p.Address)
			} else {
				from.remove(p)
			}
		}
	}
}

// Unread returns the pods with facts that were not read yet.
func (x *Sums[P]) Unread() iter.Seq[P] { return maps.Keys(x.unread) }

// Undecided returns the number of pods of which it is not known yet what they are granted.
func (x *Sums[P]) Undecided() int { return len(x.undecided) }

// Without returns what the pods but one are granted at an address.
func (x *Sums[P]) Without(own P, at blkio.Address) (out Granted) {
	if of := x.total[at]; of != nil {
		rest := *of
		if mine := x.shares[own]; mine != nil && !mine.isUndecided {
			if p, found := portionAt(mine.portions, at); found && p.Granted != 0 {
				rest.remove(&p)
			}
		}
		out = rest.granted()
	}
	for pod, of := range x.undecided { // few, and soon none
		if pod != own {
			p, found := portionAt(of.portions, at)
			if !found {
				p.Granted = blkio.Max
			}
			out.add(p.Granted)
			out.Undecided = out.Undecided || p.Granted == blkio.Max
		}
	}
	return out
}

// Known returns what the pods are granted as far as it is known, in any order. name is that of the disk, "" if it is unknown.
func (x *Sums[P]) Known(yield func(name string, at blkio.Address, granted Granted)) {
	all := map[blkio.Address]sum{}
	for at, of := range x.total {
		all[at] = *of
	}
	for _, of := range x.undecided {
		for i := range of.portions {
			if p := of.portions[i]; p.Known != 0 {
				p.Granted = p.Known
				to := all[p.Address]
				to.add(&p)
				all[p.Address] = to
			}
		}
	}
	for at, of := range all {
		yield(of.name, at, of.granted())
	}
}
