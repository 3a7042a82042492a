package record

import (
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
)

// A container's record goes with its cgroup, but what it has dirtied may belong
// to that cgroup for long, and drains at its limits if they were not lifted. So
// its end is noted in the record of the pod, for status to say whose it is.

const (
	// MaxExits and maxExitBytes are what a record has room for: the kernel
	// takes 64 KiB.
	MaxExits     = 16
	maxExitBytes = 8 << 10
)

// Exit describes the exit of one container of a pod.
type Exit struct {
	Container string
	// CgroupIDs are the numbers of its cgroup and of those that the runtime
	// had made below, see cgroupfs.Cgroup.IDs.
	CgroupIDs []uint64
	// Limits are the limits on writes that its cgroup has for
	// ever. Empty where they were lifted in time, or where there were none.
	Limits policy.Settings
	At     time.Time // UTC, to the second
}

// size is about what the entry takes in a record.
func (e Exit) size() int {
	n := 80 + len(e.Container) + 21*len(e.CgroupIDs)
	for _, l := range e.Limits.Lines() {
		n += len(l.Text) + 3
	}
	return n
}

// WithExits joins two lists, the later one second, and keeps the newest. It
// changes neither: plans have them.
func WithExits(before, after []Exit) []Exit {
	var out []Exit
	for _, e := range before {
		again := func(n Exit) bool { return slices.Equal(n.CgroupIDs, e.CgroupIDs) }
		if !slices.ContainsFunc(after, again) {
			out = append(out, e)
		}
	}
	out = append(out, after...)
	size := 0
	for i, e := range slices.Backward(out) {
		if size += e.size(); size > maxExitBytes || len(out)-i > MaxExits {
			return out[i+1:]
		}
	}
	return out
}

// WithEnded adds to the containers that came those that a record knows to have ended. Of
// these the name is known and nothing else.
func WithEnded(seen []policy.Container, exits []Exit) []policy.Container {
	for _, e := range exits {
		if !slices.ContainsFunc(seen, func(c policy.Container) bool { return c.Name == e.Container }) {
			seen = append(seen, policy.Container{Name: e.Container, Stage: policy.Ended})
		}
	}
	return seen
}
