package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Backstop returns what the containers of a pod were granted together: per
// disk and key the sum, where every container has a limit there. Where one has
// none, or the kernel could not hold the sum, there is none for the pod. The
// result is sorted by device, and nil if there is nothing to limit.
//
// Whoever owns a file's writeback inside the pod, the pod then cannot exceed
// what was granted.
func Backstop(containers []Desired) []blkio.DevLimits {
	if len(containers) == 0 {
		return nil
	}
	var out []blkio.DevLimits
	for _, d := range containers[0].Disks {
		var sum blkio.Limits
		for k := range blkio.NumLimits {
			sum[k] = sumOf(containers, d.Disk.Dev, k)
		}
		if !sum.IsZero() {
			out = append(out, blkio.DevLimits{Dev: d.Disk.Dev, Limits: sum})
		}
	}
	sortByDev(out)
	return out
}

// sumOf adds up one key of one disk; it is Unset where there is no finite sum.
func sumOf(containers []Desired, dev blkio.Dev, k blkio.Key) blkio.Amount {
	most := k.Most()
	var sum blkio.Amount
	for i := range containers {
		rate := rateOf(&containers[i], dev, k)
		if rate == blkio.Unset || rate > most || rate > most-sum {
			return blkio.Unset
		}
		sum += rate
	}
	return sum
}

func rateOf(d *Desired, dev blkio.Dev, k blkio.Key) blkio.Amount {
	for i := range d.Disks {
		if d.Disks[i].Disk.Dev == dev {
			return d.Disks[i].Limits[k]
		}
	}
	return blkio.Unset
}

// MergePod returns what to write to the pod's cgroup: per disk and key the
// smaller of what pod-total asks for and the backstop, sorted by device. A
// pod-total of max does not lift the backstop.
func MergePod(total Desired, backstop []blkio.DevLimits) []blkio.DevLimits {
	out := slices.Clone(backstop)
	for i := range total.Disks {
		d := &total.Disks[i]
		if d.Limits.IsZero() {
			continue
		}
		at := slices.IndexFunc(out, func(o blkio.DevLimits) bool { return o.Dev == d.Disk.Dev })
		if at < 0 {
			out = append(out, blkio.DevLimits{Dev: d.Disk.Dev, Limits: d.Limits})
			continue
		}
		for k, rate := range d.Limits {
			if have := out[at].Limits[k]; have == blkio.Unset || rate != blkio.Unset && rate < have {
				out[at].Limits[k] = rate
			}
		}
	}
	sortByDev(out)
	return out
}

func sortByDev(l []blkio.DevLimits) {
	slices.SortFunc(l, func(a, b blkio.DevLimits) int { return a.Dev.Compare(b.Dev) })
}
