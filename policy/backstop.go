package policy

import "github.com/nri-blkio/nri-blkio/blkio"

// Backstop returns what the containers of a pod were granted together: per
// disk and key the sum, where every container has a limit there. Where one has
// none, or the kernel could not hold the sum, there is none for the pod.
//
// Whichever cgroup of the pod owns a file's writeback, the pod then cannot exceed
// what was granted. What pod-total asks for holds where it is lower, see Settings.Lowest:
// a pod-total of max does not lift the backstop.
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
