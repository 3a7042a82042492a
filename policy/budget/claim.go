// Package budget adds up what the pods of a namespace are granted together, and decides whether its budget has room for one more
// container. It is pure: what a pod has been granted is given to it.
package budget

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Claim is the request of a new or an edited container to the budget for its namespace.
type Claim struct {
	Pod     *policy.Pod
	Desired *policy.Desired // of the container
	Total   policy.Settings // of its pod as a whole, with the disks of the container
	Own     *Share          // of its pod so far, without the container
	// Others returns what the other pods of the namespace are granted at an address of a physical disk.
	Others func(at blkio.Address) Granted
	// Grows reports whether an edit grants the pod more at an address of a physical disk. The others are not checked. It is nil for a
	// new container, for which all are checked.
	Grows func(at blkio.Address) bool
}

// Granted is the sum of the amounts that pods of a namespace are granted of one key on one physical disk.
type Granted struct {
	Amount blkio.Amount // the sum of the portions of the pods
	Pods   int          // that are granted something
	// Undecided is true if the limits of some pod are not known yet. It counts as one without a limit.
	Undecided bool
}

func (g *Granted) add(amount blkio.Amount) {
	if g.Amount = Plus(g.Amount, amount); amount != 0 {
		g.Pods++
	}
}

// charge is what a container takes of a budget at an address of a physical disk.
type charge struct {
	blkio.Address
	amount blkio.Amount  // its own limits; 0 if only its pod as a whole has one
	from   blkio.Address // the one of its devices on the disk with the highest limit
}

// Check returns an error if the budget has no room for the container, or if the container uses a disk without
// a limit. The kind of the error is annotation.Invalid. Equal claims give equal errors.
func (c *Claim) Check() *annotation.Error {
	b := c.Pod.Budget()
	if b == nil {
		return nil
	}
	next := c.Own.with(c.Desired, c.Total, b)
	charges, unlimited, isUnlimited := c.charges(&next)
	if isUnlimited {
		return c.unlimited(unlimited)
	}
	before, after := c.Own.Portions(), next.Portions()
	for i := range charges {
		if err := c.checkOne(&charges[i], before, after); err != nil {
			return err
		}
	}
	return nil
}

// charges returns what the container takes of the budget, sorted by address, and the first address of a device that it uses without
// a limit, if there is one. next is its pod with the container.
func (c *Claim) charges(next *Share) (out []charge, unlimited blkio.Address, isUnlimited bool) {
	b := c.Pod.Budget()
	out = make([]charge, 0, len(c.Desired.Settings)+len(c.Total))
	add := func(device blkio.Address, amount blkio.Amount) {
		next.below(device.Dev, "", func(d blkio.Disk) {
			at := blkio.Address{Key: device.Key, Dev: d.Dev}
			if c.Grows != nil && !c.Grows(at) {
				return
			}
			out = append(out, charge{at, amount, device})
			if amount == blkio.Max && next.bound(device) == blkio.Max && (!isUnlimited || device.Compare(unlimited) < 0) {
				unlimited, isUnlimited = device, true
			}
		})
	}
	c.Desired.Charges(b, add)
	for _, x := range c.Total { // an entry of pod-total can name a mount that the container only reads, on a disk that others write
		if b.Has(x.Key) {
			add(x.Address, 0)
		}
	}
	slices.SortFunc(out, func(a, b charge) int {
		return cmp.Or(a.Compare(b.Address), cmp.Compare(b.amount, a.amount), a.from.Compare(b.from))
	})
	last := 0
	for i := 1; i < len(out); i++ {
		if out[i].Address != out[last].Address {
			last++
			out[last] = out[i]
		} else {
			out[last].amount = Plus(out[last].amount, out[i].amount)
		}
	}
	return out[:min(len(out), last+1)], unlimited, isUnlimited
}

// checkOne returns an error if what the pod is granted at an address would grow beyond the budget. before and after are the
// portions of the pod. Of other containers of the pod only what is known counts: the budget is asked about the rest once it is known.
func (c *Claim) checkOne(x *charge, before, after []Portion) *annotation.Error {
	others, most := c.Others(x.Address), c.Pod.Budget().Limits[x.Key]
	now := knownAt(before, x.Address)
	next, _ := portionAt(after, x.Address)
	if next.Known <= now || Plus(others.Amount, next.Known) <= most {
		return nil
	}
	source, value, used := c.source(x.from), x.amount, Plus(others.Amount, now)
	room := most - min(used, most)
	if next.Sum > next.Known || x.amount == 0 { // the limit of the pod decides
		if s, found := c.Total.Get(x.from); found {
			source = s.Source
		}
		value, room = next.Known, most-min(others.Amount, most)
	}
	pods := others.Pods
	if now != 0 {
		pods++
	}
	k := x.Key
	all, waits, cause := annotation.FormatAmount(k, most), true, ""
	switch {
	case value > most:
		room, waits, cause = most, false, all
	case used == blkio.Max && others.Undecided:
		cause = "the limits of a pod that runs are not decided yet"
	case used == blkio.Max:
		cause = "a pod without a limit there counts as granted all of " + all
	case others.Amount == 0:
		waits, cause = false, annotation.FormatAmount(k, used)+" of "+all+" are granted to other containers of the pod"
	case pods == 1:
		cause = annotation.FormatAmount(k, used) + " of " + all + " are granted to 1 pod"
	default:
		cause = annotation.FormatAmount(k, used) + " of " + all + " are granted to " + strconv.Itoa(pods) + " pods"
	}
	asked := k.String() + "=" + annotation.FormatAmount(k, value) + " on " + c.diskText(x.Dev)
	return annotation.New(annotation.Identity{From: source.Origin(), Subject: asked, Reason: annotation.NoRoom}, &annotation.Problem{
		Cause: asked + " exceeds the budget of namespace " + c.namespace() + ": " + cause,
		Hint:  c.remedy(k, room, waits, source.Kind),
	})
}

// remedy returns what to do about an error: wait for room, or write at most room.
func (c *Claim) remedy(k blkio.Key, room blkio.Amount, waits bool, from policy.SourceKind) string {
	wait := ""
	if waits {
		wait = "wait for room"
	}
	if room < c.Pod.LeastRate(k) {
		return cmp.Or(wait, "wait for room")
	}
	write := "write at most " + annotation.FormatAmount(k, room)
	if from != policy.FromAnnotation {
		if !c.Pod.AllowsAnnotations() {
			return cmp.Or(wait, "ask the operators of the cluster")
		}
		write += " in an annotation"
	}
	if wait != "" {
		return wait + ", or " + write
	}
	return write
}

// source returns the source of the container's value at an address.
func (c *Claim) source(at blkio.Address) policy.Source {
	if s, found := c.Desired.Settings.Get(at); found {
		return s.Source
	}
	return policy.Source{Kind: policy.FromAnnotation, Name: keyOfEach}
}

// keyOfEach is the annotation that limits all containers of a pod.
const keyOfEach = "limits." + annotation.Domain + "/containers"

// diskText returns "disk NAME", or only the name of a placeholder.
func (c *Claim) diskText(dev blkio.Dev) string {
	name := cmp.Or(c.Desired.DiskName(dev), dev.String())
	if dev.IsUnknown() {
		return name
	}
	return "disk " + name
}

// unlimited returns the error for a container that uses a disk without a limit.
func (c *Claim) unlimited(at blkio.Address) *annotation.Error {
	k, source := at.Key, c.source(at)
	disk := c.diskText(at.Dev)
	of := annotation.Identity{From: source.Origin(), Subject: k.String() + " on " + disk, Reason: annotation.NeedsLimit}
	out := annotation.New(of, &annotation.Problem{
		Cause: k.String() + " of * needs a limit: " + disk + " has none, and namespace " + c.namespace() + " has a budget",
		Hint:  `write for example "* ` + k.String() + "=" + annotation.FormatAmount(k, c.example(k)) + `"`,
	})
	if !c.Pod.AllowsAnnotations() {
		out.From, out.Hint = annotation.Origin{Rule: c.Pod.Rule()}, "ask the operators of the cluster"
	}
	return out
}

// example returns an eighth of the budget, or the smallest value that may be requested.
func (c *Claim) example(k blkio.Key) blkio.Amount {
	return max(c.Pod.Budget().Limits[k]/8, c.Pod.LeastRate(k))
}

func (c *Claim) namespace() string { return quote.Name(c.Pod.Namespace(), quote.Most+10) }

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
