package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Backstop returns the sum of the limits of a pod's containers, by disk and key. It leaves
// out a disk and key for which a container has no limit, or for which the sum is larger
// than the kernel takes. A container that does not use the disk adds nothing to the sum: it
// can still write there, to a file that another container of the pod has opened for it, or
// below /proc/PID/root if they share their processes.
//
// The backstop bounds the pod, whichever of its cgroups owns the writeback of a file. A
// lower pod-total replaces it, see Settings.Lowest. A pod-total of max does not.
func Backstop(containers []Desired) Settings {
	var all, out Settings
	for i := range containers {
		all = append(all, containers[i].Settings...)
	}
	for _, s := range NewSettings(all...) {
		if !s.Key.IsRate() {
			continue // shares have no sum
		}
		if sum := sumOf(containers, s.Address); sum != blkio.Unset {
			out = append(out, Setting{Value: blkio.Value{Address: s.Address, Amount: sum}, Source: Source{Kind: FromBackstop}})
		}
	}
	return out
}

// sumOf adds up one key of one disk; it is Unset where there is no finite sum.
func sumOf(containers []Desired, at blkio.Address) blkio.Amount {
	most := at.Key.Most()
	var sum blkio.Amount
	for i := range containers {
		amount := containers[i].limitAt(at)
		if amount > most-sum {
			return blkio.Unset
		}
		sum += amount
	}
	return sum
}

// limitAt returns the limit of a container at an address: 0 if it is known not to use the disk, and blkio.Max if it has no limit
// there.
func (d *Desired) limitAt(at blkio.Address) blkio.Amount {
	switch s, found := d.Settings.Get(at); {
	case found:
		return s.Amount
	case !d.Covers[at.Key] || d.uses(at):
		return blkio.Max
	}
	return 0
}

// uses reports whether an address is one of Uses, which are sorted.
func (d *Desired) uses(at blkio.Address) bool {
	_, found := slices.BinarySearchFunc(d.Uses, at, func(u Use, at blkio.Address) int { return u.Address().Compare(at) })
	return found
}

// cover notes that the current entry for "*" is about each disk of a container.
func (e *evaluation) cover() {
	for k, amount := range e.values {
		e.out.Covers[k] = e.out.Covers[k] || amount != blkio.Unset && e.scope != scopeTotal
	}
}
