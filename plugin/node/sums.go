package node

import (
	"math/bits"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file keeps up to date what the pods of a namespace are granted of its budget together.

// namespace has the pods of a namespace that are part of the state.
type namespace struct {
	pods map[string]*pod // by sandbox ID
	sums *sums           // nil until its budget is first asked, and without a budget
}

// sums has what the pods of a namespace are granted of its budget together. Thousands of pods may share a budget, and each creation
// of a container asks it while all other events wait. So the share of a pod is kept until the pod changes (state.recount), and the
// sums change by the difference. They are the same as if all pods were added up: TestBudgetSums and TestModel compare them after each event.
type sums struct {
	namespace string
	budget    *policy.NamespaceBudget // the keys that it bounds are those of the sums
	shares    map[*group]*groupShare
	stale     map[*group]bool // that have changed since their share was added
	total     map[blkio.Address]*sum
	// undecided are those of shares with policy.Share.Undecided, which are not in total. unread are those with facts that were not read
	// yet, see readGranted.
	undecided map[*group]*groupShare
	unread    map[*group]bool
}

// groupShare is what a group is granted in a namespace.
type groupShare struct {
	portions    []policy.Portion
	isUndecided bool
}

// sum is what pods are granted together at an address of a physical disk.
type sum struct {
	name      string // of the disk, "" if it is unknown
	high, low uint64 // of the limited ones, in 128 bits: a sum that has reached its highest value could not be lowered again
	unlimited int    // pods that are granted blkio.Max
	pods      int    // that are granted something
}

func (s *sum) add(p *policy.Portion) {
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

func (s *sum) remove(p *policy.Portion) {
	s.pods--
	if p.Granted == blkio.Max {
		s.unlimited--
		return
	}
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, uint64(p.Granted), 0)
	s.high -= borrow
}

// granted returns the sum.
func (s *sum) granted() policy.Granted {
	if s.unlimited > 0 || s.high > 0 {
		return policy.Granted{Amount: blkio.Max, Pods: s.pods}
	}
	return policy.Granted{Amount: blkio.Amount(s.low), Pods: s.pods}
}

// sumsOf returns the sums of a namespace for a budget, which update has to bring up to date. They are added up anew for a budget
// with other keys.
func (s *state) sumsOf(name string, b *policy.NamespaceBudget) *sums {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{} // its last pod has left
	}
	if ns.sums == nil || !covers(ns.sums.budget, b) || !covers(b, ns.sums.budget) {
		ns.sums = &sums{
			namespace: name, shares: map[*group]*groupShare{}, stale: map[*group]bool{}, total: map[blkio.Address]*sum{},
			undecided: map[*group]*groupShare{}, unread: map[*group]bool{},
		}
		for _, pod := range ns.pods {
			ns.sums.stale[pod.group.in(s)] = true
		}
	}
	ns.sums.budget = b
	return ns.sums
}

// recount has the budgets of a group's namespaces add it up again. Each change of what share depends on has to call it.
func (s *state) recount(g *group) {
	for _, pod := range g.pods {
		if ns := s.namespaces[pod.namespace]; ns != nil && ns.sums != nil {
			ns.sums.stale[g] = true
		}
	}
}

// update adds up the groups of the namespace that have changed. It leaves one out, which may be about to change back.
func (x *sums) update(except *group) {
	for g := range x.stale {
		if g == except {
			continue
		}
		delete(x.stale, g)
		x.remove(g)
		x.add(g)
	}
}

// add adds the share of a group, unless it has no pod in the namespace.
func (x *sums) add(g *group) {
	if !g.isIn(x.namespace) {
		return
	}
	share, isUnread := g.share(x.namespace, x.budget, none)
	added := &groupShare{portions: share.Portions(), isUndecided: share.Undecided}
	x.shares[g] = added
	if isUnread {
		x.unread[g] = true
	}
	if added.isUndecided {
		x.undecided[g] = added
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
func (x *sums) remove(g *group) {
	of := x.shares[g]
	if of == nil {
		return
	}
	delete(x.shares, g)
	delete(x.unread, g)
	if of.isUndecided {
		delete(x.undecided, g)
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

// forget removes a group whose pod has left, unless another one of its pods is in the namespace.
func (x *sums) forget(g *group) {
	if x == nil {
		return
	}
	if x.stale[g] = true; !g.isIn(x.namespace) {
		delete(x.stale, g)
		x.remove(g)
	}
}

// isIn reports whether a pod of the group is in a namespace.
func (g *group) isIn(namespace string) bool {
	for _, pod := range g.pods {
		if pod.namespace == namespace {
			return true
		}
	}
	return false
}

// without returns what the groups of the namespace but one are granted at an address.
func (x *sums) without(own *group, at blkio.Address) (out policy.Granted) {
	if of := x.total[at]; of != nil {
		rest := *of
		if mine := x.shares[own]; mine != nil && !mine.isUndecided {
			if p, found := policy.PortionAt(mine.portions, at); found && p.Granted != 0 {
				rest.remove(&p)
			}
		}
		out = rest.granted()
	}
	for g, of := range x.undecided { // few, and soon none
		if g != own {
			p, found := policy.PortionAt(of.portions, at)
			if !found {
				p.Granted = blkio.Max
			}
			out.Add(p.Granted)
			out.Undecided = out.Undecided || p.Granted == blkio.Max
		}
	}
	return out
}

// known returns what the groups are granted as far as it is known, in any order.
func (x *sums) known(yield func(name string, at blkio.Address, granted policy.Granted)) {
	if len(x.undecided) == 0 { // mostly it is so
		for at, of := range x.total {
			yield(of.name, at, of.granted())
		}
		return
	}
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
