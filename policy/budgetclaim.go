package policy

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Claim is the request of a new or an edited container to the budget for its namespace.
type Claim struct {
	Pod     *Pod
	Desired *Desired // of the container
	Total   Settings // of its pod as a whole, with the disks of the container
	// Granted returns what is granted so far at an address.
	Granted func(at blkio.Address) Granted
	// Grows reports whether an edit grants the pod more at an address. The others are not checked. It is nil for a new container,
	// for which all addresses are checked.
	Grows func(at blkio.Address) bool
}

// Granted is the sum of the amounts that the pods of a namespace are granted of one key on one disk.
type Granted struct {
	Others blkio.Amount // the sum over the other pods: of each, the smaller of its pod-total and the sum of its containers
	Own    blkio.Amount // the sum over the other containers of the pod
	Bound  blkio.Amount // the limit of the pod as a whole so far; blkio.Unset for none. Claim.Total replaces it
	Pods   int          // the number of pods, the own one included, that are granted something
	// Undecided is true if the limits of some container are not known yet. It counts as one without a limit.
	Undecided bool
}

// Check returns an error if the budget has no room for the container, or if the container uses a disk without
// a limit. The kind of the error is annotation.Invalid. Equal claims give equal errors.
func (c *Claim) Check() *annotation.Error {
	b := c.Pod.Budget()
	if b == nil {
		return nil
	}
	var charges []charge
	c.Desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { charges = append(charges, charge{at, amount}) })
	// An entry of pod-total can name a mount that the container only reads, on a disk that others write.
	for _, x := range c.Total {
		if b.Has(x.Key) && !slices.ContainsFunc(charges, func(of charge) bool { return of.at == x.Address }) {
			charges = append(charges, charge{at: x.Address})
		}
	}
	if c.Grows != nil {
		charges = slices.DeleteFunc(charges, func(x charge) bool { return !c.Grows(x.at) })
	}
	slices.SortFunc(charges, func(a, b charge) int { return a.at.Compare(b.at) })
	for _, x := range charges {
		if now := c.Granted(x.at); x.amount == blkio.Max && c.bound(x.at, &now) == blkio.Max {
			return c.unlimited(x.at)
		}
	}
	for _, x := range charges {
		if err := c.checkOne(x, b.Limits[x.at.Key]); err != nil {
			return err
		}
	}
	return nil
}

// charge is the amount that a container uses of a budget at an address: 0 if only its pod as a whole has a limit there.
type charge struct {
	at     blkio.Address
	amount blkio.Amount
}

// bound returns the limit of the pod as a whole once it has the container; blkio.Max for none. It can be higher than so far: the
// container may have the mount that an entry of pod-total names.
func (c *Claim) bound(at blkio.Address, now *Granted) blkio.Amount {
	total, _ := c.Total.Get(at)
	return cmp.Or(total.Amount, now.Bound, blkio.Max)
}

// checkOne returns an error if what the pod is granted at an address would grow beyond the budget.
func (c *Claim) checkOne(x charge, most blkio.Amount) *annotation.Error {
	now := c.Granted(x.at)
	bound := c.bound(x.at, &now)
	before, sum := min(now.Own, cmp.Or(now.Bound, blkio.Max)), Plus(now.Own, x.amount)
	after := min(sum, bound)
	if after <= before || Plus(now.Others, after) <= most {
		return nil
	}
	source, value, used := c.source(x.at), x.amount, Plus(now.Others, before)
	room := most - min(used, most)
	if sum > bound || x.amount == 0 { // the limit of the pod decides
		if s, found := c.Total.Get(x.at); found {
			source = s.Source
		}
		value, room = after, most-min(now.Others, most)
	}
	k := x.at.Key
	all, waits, cause := annotation.FormatAmount(k, most), true, ""
	switch {
	case value > most:
		room, waits, cause = most, false, all
	case used == blkio.Max && now.Undecided:
		cause = "the limits of a pod that runs are not decided yet"
	case used == blkio.Max:
		cause = "a pod without a limit there counts as granted all of " + all
	case now.Others == 0:
		waits, cause = false, annotation.FormatAmount(k, used)+" of "+all+" are granted to other containers of the pod"
	case now.Pods == 1:
		cause = annotation.FormatAmount(k, used) + " of " + all + " are granted to 1 pod"
	default:
		cause = annotation.FormatAmount(k, used) + " of " + all + " are granted to " + strconv.Itoa(now.Pods) + " pods"
	}
	return &annotation.Error{
		Annotation: source.Text(),
		Cause: k.String() + "=" + annotation.FormatAmount(k, value) + " on " + c.diskText(x.at.Dev) +
			" exceeds the budget of namespace " + c.Pod.namespaceText() + ": " + cause,
		Hint: c.remedy(k, room, waits, source.Kind),
	}
}

// remedy returns what to do about an error: wait for room, or write at most room.
func (c *Claim) remedy(k blkio.Key, room blkio.Amount, waits bool, from SourceKind) string {
	wait := ""
	if waits {
		wait = "wait for room"
	}
	least, _ := c.Pod.minRate(k)
	if room < max(least, c.Pod.policy.Floors.of(k)) {
		return cmp.Or(wait, "wait for room")
	}
	write := "write at most " + annotation.FormatAmount(k, room)
	if from != FromAnnotation {
		if !c.Pod.allowsAnnotations() {
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
func (c *Claim) source(at blkio.Address) Source {
	if s, found := c.Desired.Settings.Get(at); found {
		return s.Source
	}
	return Source{Kind: FromAnnotation, Name: keyOfEach}
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
	out := &annotation.Error{
		Annotation: source.Text(),
		Cause:      k.String() + " of * needs a limit: " + c.diskText(at.Dev) + " has none, and namespace " + c.Pod.namespaceText() + " has a budget",
		Hint:       `write for example "* ` + k.String() + "=" + annotation.FormatAmount(k, c.example(k)) + `"`,
	}
	if !c.Pod.allowsAnnotations() {
		out.Annotation, out.Hint = c.Pod.rule.title, "ask the operators of the cluster"
	}
	return out
}

// example returns an eighth of the budget, or the smallest value that may be requested.
func (c *Claim) example(k blkio.Key) blkio.Amount {
	least, _ := c.Pod.minRate(k)
	return max(c.Pod.budget.Limits[k]/8, least, c.Pod.policy.Floors.of(k))
}

// allowsAnnotations reports whether annotations count for the pod.
func (p *Pod) allowsAnnotations() bool { return p.rule.allowsAnnotations() }

// namespaceText returns the pod's namespace for messages.
func (p *Pod) namespaceText() string { return quote.Name(p.namespace, quote.Most+10) }
