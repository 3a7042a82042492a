package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Lent is what other pods lend to a pod: the disks of their raw block claims, and the limits that these claims bring along. They are
// pods that it controls, and its containers use the disks. The zero value is nothing. It does not change.
type Lent struct {
	Disks  []blkio.Disk // also those without a limit; sorted by number, distinct
	Limits Settings     // with the basis LentLimit
	// Unsure are those of Disks that have a claim whose limits do not count, because they are invalid or unknown: what was lent there
	// before stays. Sorted and distinct as well.
	Unsure []blkio.Disk
}

// Lends returns what a container of the pod lends to the owner of the pod. d is the decision for the container. The owner's mode decides
// whether that is in force, and not the one of p. Nothing is returned of claims that are unknown, and of a privileged container, which
// has all disks of the node.
func (p *Pod) Lends(c *Container, d *Desired) (out Lent) {
	var paths map[string]bool
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.Backing.FSType != "" || m.Injected { // a device has none
			continue
		}
		if paths == nil {
			paths = p.volumes.pathsIn(c.Name, slices.Concat(d.Claims, d.Errors))
		}
		isSure, isVolume := paths[m.Destination]
		if isVolume {
			out.Disks = append(out.Disks, m.Backing.Disks...)
		}
		if isVolume && !isSure {
			out.Unsure = append(out.Unsure, m.Backing.Disks...)
		}
	}
	out.Disks, out.Unsure = sortedDisks(out.Disks), sortedDisks(out.Unsure)
	out.Limits = d.Settings.Where(func(s Setting) bool {
		return s.Key.IsRate() && s.Amount != blkio.Max && hasDisk(out.Disks, s.Dev) && (s.isOfClaim() || s.Basis == Room)
	}).as(LentLimit, func(Setting) bool { return true })
	return out
}

// pathsIn returns the paths at which a container has volumes, each with false if it is that of a claim with one of the errors.
func (v *Volumes) pathsIn(container string, errs []*annotation.Error) map[string]bool {
	out := map[string]bool{}
	for _, at := range v.at[container] {
		out[at.path] = true
	}
	for _, e := range errs {
		for _, path := range v.placesOf(e.From.Claim, container) {
			out[path] = false
		}
	}
	return out
}

func sortedDisks(disks []blkio.Disk) []blkio.Disk {
	slices.SortFunc(disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	return slices.CompactFunc(disks, func(a, b blkio.Disk) bool { return a.Dev == b.Dev })
}

// hasDisk reports whether disks that are sorted by number have one.
func hasDisk(disks []blkio.Disk, dev blkio.Dev) bool {
	_, found := slices.BinarySearchFunc(disks, dev, func(d blkio.Disk, dev blkio.Dev) int { return d.Dev.Compare(dev) })
	return found
}

// Equal reports whether the same is lent.
func (l Lent) Equal(o Lent) bool {
	return slices.Equal(l.Disks, o.Disks) && slices.Equal(l.Limits, o.Limits)
}

// Together returns what some lenders lend together, in any order. Of several limits the lowest one counts.
func Together(all ...Lent) (out Lent) {
	disks, limits := 0, 0
	for _, l := range all {
		disks, limits = disks+len(l.Disks), limits+len(l.Limits)
	}
	out.Disks, out.Limits = make([]blkio.Disk, 0, disks), make(Settings, 0, limits)
	for _, l := range all {
		out.Disks, out.Limits, out.Unsure = append(out.Disks, l.Disks...), append(out.Limits, l.Limits...), append(out.Unsure, l.Unsure...)
	}
	slices.SortFunc(out.Limits, func(a, b Setting) int {
		return cmp.Or(a.Compare(b.Address), cmp.Compare(a.Amount, b.Amount), cmp.Compare(a.Source.Kind, b.Source.Kind), strings.Compare(a.Source.Name, b.Source.Name))
	})
	out.Limits = slices.CompactFunc(out.Limits, func(a, b Setting) bool { return a.Address == b.Address })
	return Lent{sortedDisks(out.Disks), out.Limits, sortedDisks(out.Unsure)}
}

// Over returns what is lent now, and on other disks what was lent before. Of the disks in l.Unsure it keeps those limits that l does not
// have.
func (l Lent) Over(before Lent) Lent {
	isKept := func(s Setting) bool { return !hasDisk(l.Disks, s.Dev) || hasDisk(l.Unsure, s.Dev) }
	return Lent{Disks: sortedDisks(slices.Concat(l.Disks, before.Disks)), Limits: l.Limits.Join(before.Limits.Where(isKept))}
}

// Without returns what is lent on other disks than these, which are sorted by number.
func (l Lent) Without(disks []blkio.Disk) Lent {
	return Lent{
		Disks:  slices.DeleteFunc(slices.Clone(l.Disks), func(d blkio.Disk) bool { return hasDisk(disks, d.Dev) }),
		Limits: l.Limits.Where(func(s Setting) bool { return !hasDisk(disks, s.Dev) }),
	}
}

// Borrow lowers a decision for a container of the pod to the limits that are lent to the pod. They raise no limit, and take nothing of a
// budget: the lender does. The decision's own value is noted in Lowered, so that Unborrow finds it in a record. A lent limit counts where
// the rule allows limits of claims; one below the rule's bound counts as that bound. p is nil for an undecided container, and lent for
// nothing.
func (p *Pod) Borrow(d Desired, lent *Lent) Desired {
	if lent == nil || len(lent.Disks) == 0 {
		return d
	}
	names := map[blkio.Dev]string{}
	for _, disk := range lent.Disks {
		names[disk.Dev] = disk.Name
	}
	if p != nil && !p.isForeign && p.AllowsAnnotations() && len(lent.Limits) > 0 {
		own := d.Settings
		d.Settings = own.Lowest(p.withinBounds(lent.Limits))
		d.Lowered = d.Lowered.Join(own.Where(func(s Setting) bool {
			now, _ := d.Settings.Get(s.Address)
			return now != s
		}))
	}
	d.Disks = DiskNames(d.Settings.Join(d.Lowered).Join(lent.Noted()), names, d.Disks)
	return d
}

// Noted returns what is lent in the form of a record: the limits, and wbps=max for a disk without that one. l may be nil.
func (l *Lent) Noted() Settings {
	if l == nil {
		return nil
	}
	out := make([]Setting, 0, len(l.Disks))
	for _, d := range l.Disks {
		out = append(out, Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: d.Dev}, Amount: blkio.Max}, Basis: LentLimit})
	}
	return l.Limits.Join(NewSettings(out...))
}

// withinBounds returns limits with those below the bounds of the pod's rule raised to them.
func (p *Pod) withinBounds(limits Settings) Settings {
	out := slices.Clone(limits)
	for i, s := range out {
		least, _ := p.minRate(s.Key)
		out[i].Amount = max(s.Amount, least, p.policy.Floors.of(s.Key))
	}
	return out
}

// Unborrow is the inverse of Borrow and Noted. Where d.Lowered had a value before, own has it in place of the one that was lowered.
func (d *Desired) Unborrow(noted Settings) (own Desired, lent Lent) {
	own, lent.Limits = *d, noted.Where(func(s Setting) bool { return s.Amount != blkio.Max })
	for _, s := range noted {
		lent.Disks = append(lent.Disks, blkio.Disk{Dev: s.Dev, Name: d.Disks[s.Dev]})
	}
	lent.Disks = sortedDisks(lent.Disks)
	own.Lowered = d.Lowered.Without(d.Settings.Where(Setting.isLent))
	own.Settings = d.Settings.Where(func(s Setting) bool { return !s.isLent() }).Join(d.Lowered.Without(own.Lowered))
	return own, lent
}

func (s Setting) isLent() bool { return s.Basis == LentLimit }
