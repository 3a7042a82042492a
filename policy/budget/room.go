package budget

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// fromBudget is the source of what a budget has left.
var fromBudget = policy.Source{Kind: policy.FromRule, Name: "budgets"}

// Room returns what the budget has left: limits for a container that runs although Check has an error for it. With them, the budget is not exceeded by more
// than the floor on each device. Its pod as a whole keeps its limits: where it has one already, Total does not replace that.
func (c *Claim) Room() policy.Settings {
	b := c.Pod.Budget()
	if b == nil {
		return nil
	}
	own := c.Own.with(&policy.Desired{Extent: policy.Extent{Lowest: c.Desired.Lowest}}, nil, b)
	for _, x := range c.Total {
		if b.Has(x.Key) && own.bound(x.Address) == blkio.Max {
			own.Bind(x.Address, x.Amount)
		}
	}
	var out []policy.Setting
	var charges []blkio.Value
	c.Desired.Charges(b, func(at blkio.Address, amount blkio.Amount) {
		charges = append(charges, blkio.Value{Address: at, Amount: amount})
	})
	slices.SortFunc(charges, func(a, b blkio.Value) int { return a.Compare(b.Address) })
	for _, x := range charges { // those on one disk take its room one after another
		if room, exceeds := c.roomFor(x, &own); exceeds && c.growsOn(x.Address, &own) {
			x.Amount = min(x.Amount, max(room, c.Pod.Floor(x.Key)))
			out = append(out, policy.Setting{Value: x, Source: fromBudget, Basis: policy.Room})
		}
		own.Add(x.Address, x.Amount, c.Desired)
	}
	return policy.NewSettings(out...)
}

// growsOn reports whether the pod is granted more on some physical disk below a device.
func (c *Claim) growsOn(at blkio.Address, own *Share) (grows bool) {
	if c.Grows == nil {
		return true
	}
	own.below(at.Dev, "", func(d blkio.Disk) {
		grows = grows || c.Grows(blkio.Address{Key: at.Key, Dev: d.Dev})
	})
	return grows
}

// roomFor returns the room for one more limit on a device, beside those of own, and whether the limit exceeds it.
func (c *Claim) roomFor(x blkio.Value, own *Share) (room blkio.Amount, exceeds bool) {
	next, most := *own, c.Pod.Budget().Limits[x.Key]
	next.parts = slices.Clone(own.parts)
	next.Add(x.Address, x.Amount, c.Desired)
	before, after := own.Portions(), next.Portions()
	room, exceeds = most, x.Amount == blkio.Max && own.bound(x.Address) == blkio.Max
	own.below(x.Dev, "", func(d blkio.Disk) {
		at := blkio.Address{Key: x.Key, Dev: d.Dev}
		now, others := knownAt(before, at), c.Others(at).Amount
		then := knownAt(after, at)
		exceeds = exceeds || then > now && Plus(others, then) > most
		room = min(room, most-min(Plus(others, now), most))
	})
	return room, exceeds
}
