package policy

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Lent is what other pods lend to a pod: the disks of their raw block claims, and the limits that these claims bring along. They are
// pods that it controls, and its containers use the disks. The zero value is nothing. It does not change.
type Lent struct {
	Disks  []blkio.Disk // also those without a limit; sorted by number, distinct
	Limits Settings     // with the basis LentLimit
}

// Lends returns what a container of the pod lends to the owner of the pod. d is the decision for the container. Nothing is returned of
// claims that are unknown, of a container that is only observed, and of a privileged one, which has all disks of the node.
func (p *Pod) Lends(c *Container, d *Desired) (out Lent) {
	if p.Mode() != ModeEnforce {
		return Lent{}
	}
	var paths map[string]bool
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.Backing.FSType != "" || m.Injected { // a device has none
			continue
		}
		if paths == nil {
			paths = p.volumes.pathsIn(c.Name)
		}
		if paths[m.Destination] {
			out.Disks = append(out.Disks, m.Backing.Disks...)
		}
	}
	out.Disks = sortedDisks(out.Disks)
	out.Limits = slices.Clone(d.Settings.Where(func(s Setting) bool {
		return s.Key.IsRate() && hasDisk(out.Disks, s.Dev) && (s.isOfClaim() || s.Basis == Room)
	}))
	for i := range out.Limits {
		out.Limits[i].Basis = LentLimit
	}
	return out
}

// pathsIn returns the paths at which a container has volumes.
func (c *Volumes) pathsIn(container string) map[string]bool {
	out := map[string]bool{}
	if c != nil {
		for _, at := range c.at[container] {
			out[at.path] = true
		}
	}
	return out
}

func sortedDisks(disks []blkio.Disk) []blkio.Disk {
	slices.SortStableFunc(disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	return slices.CompactFunc(disks, func(a, b blkio.Disk) bool { return a.Dev == b.Dev })
}

func hasDisk(disks []blkio.Disk, dev blkio.Dev) bool {
	return slices.ContainsFunc(disks, func(d blkio.Disk) bool { return d.Dev == dev })
}

// Equal reports whether the same is lent.
func (l Lent) Equal(o Lent) bool {
	return slices.Equal(l.Disks, o.Disks) && slices.Equal(l.Limits, o.Limits)
}

// Together returns what some lenders lend together. Of several limits the lowest one counts.
func Together(all ...Lent) (out Lent) {
	for _, l := range all {
		out.Disks, out.Limits = append(out.Disks, l.Disks...), append(out.Limits, l.Limits...)
	}
	slices.SortStableFunc(out.Limits, func(a, b Setting) int { return cmp.Compare(a.Amount, b.Amount) })
	return Lent{sortedDisks(out.Disks), NewSettings(out.Limits...)}
}

// Over returns what is lent now, and on other disks what was lent before.
func (l Lent) Over(before Lent) Lent { return Together(l, before.Without(l.Disks)) }

// Without returns what is lent on other disks than these.
func (l Lent) Without(disks []blkio.Disk) Lent {
	return Lent{
		slices.DeleteFunc(slices.Clone(l.Disks), func(d blkio.Disk) bool { return hasDisk(disks, d.Dev) }),
		l.Limits.Where(func(s Setting) bool { return !hasDisk(disks, s.Dev) }),
	}
}

// Borrow lowers a decision for a container of the pod to the limits that are lent to the pod. They raise no limit, and take nothing of a
// budget: the lender does. The value that is not in force is noted in Lowered, so that Unborrow finds it in a record. A lent limit counts
// where one of a claim of the pod itself would: the rule allows it, and it is not below the rule's bound. p and lent may be nil.
func (p *Pod) Borrow(d Desired, lent *Lent) Desired {
	if p == nil || lent == nil || len(lent.Limits) == 0 || p.isForeign || !p.allowsAnnotations() {
		return d
	}
	counting := lent.Limits.Where(func(s Setting) bool {
		least, _ := p.minRate(s.Key)
		return s.Amount >= max(least, p.policy.Floors.of(s.Key))
	})
	own := d.Settings
	d.Settings = own.Lowest(counting)
	isWaiting := func(s Setting) bool {
		now, _ := d.Settings.Get(s.Address)
		return now != s
	}
	d.Lowered = d.Lowered.Join(own.Where(isWaiting)).Join(counting.Where(isWaiting))
	names := map[blkio.Dev]string{}
	for _, disk := range lent.Disks {
		names[disk.Dev] = disk.Name
	}
	d.Disks = DiskNames(d.Settings.Join(d.Lowered), names, d.Disks)
	return d
}

// Unborrow is the inverse of Borrow.
func (d *Desired) Unborrow() (own Desired, lent Lent) {
	own = *d
	if lent.Limits = d.granted(Setting.isLent); len(lent.Limits) == 0 {
		return own, Lent{}
	}
	for _, s := range lent.Limits {
		lent.Disks = append(lent.Disks, blkio.Disk{Dev: s.Dev, Name: d.Disks[s.Dev]})
	}
	lent.Disks = sortedDisks(lent.Disks)
	isOwn := func(s Setting) bool { return !s.isLent() }
	inForce := d.Settings.Where(Setting.isLent)
	lowered := d.Lowered.Where(isOwn)
	own.Lowered = lowered.Without(inForce)
	own.Settings = d.Settings.Where(isOwn).Join(lowered.Without(own.Lowered))
	return own, lent
}

func (s Setting) isLent() bool { return s.Basis == LentLimit }
