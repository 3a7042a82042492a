package policy

import "github.com/nri-blkio/nri-blkio/blkio"

// Backstop returns the sum of the limits of a pod's containers, by disk and key. It leaves
// out a disk and key for which a container has no limit, or for which the sum is larger
// than the kernel takes.
//
// The backstop bounds the pod, whichever of its cgroups owns the writeback of a file. A
// lower pod-total replaces it, see Settings.Lowest. A pod-total of max does not.
func Backstop(containers []Settings) Settings {
	if len(containers) == 0 {
		return nil
	}
	var out Settings
	for _, s := range containers[0] {
		if !s.Key.IsRate() {
			continue // shares have no sum
		}
		if sum := sumOf(containers, s.Address); sum != blkio.Unset {
			out = append(out, Setting{blkio.Value{Address: s.Address, Amount: sum}, Source{Kind: FromBackstop}})
		}
	}
	return out
}

// sumOf adds up one key of one disk; it is Unset where there is no finite sum.
func sumOf(containers []Settings, at blkio.Address) blkio.Amount {
	most := at.Key.Most()
	var sum blkio.Amount
	for _, settings := range containers {
		s, found := settings.Get(at)
		if !found || s.Amount > most || s.Amount > most-sum {
			return blkio.Unset
		}
		sum += s.Amount
	}
	return sum
}
