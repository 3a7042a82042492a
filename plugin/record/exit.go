package record

import (
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
)

// The record of a container is removed with its cgroup. The data that it has left may belong
// to that cgroup for a long time, and is written at its limits if they were not lifted. So
// the record of the pod has the exits of its containers, and status can name them.

const (
	// MaxExits and maxExitBytes bound the exits in a record, because the kernel takes 64 KiB.
	MaxExits     = 16
	maxExitBytes = 8 << 10
)

// Exit describes the exit of one container of a pod.
type Exit struct {
	Container string
	// CgroupIDs are the IDs of the container's cgroup and of its children, see
	// cgroupfs.Cgroup.IDs.
	CgroupIDs []uint64
	// Limits are the limits on writes that were not lifted before the cgroup was removed,
	// and that cannot be changed any more.
	Limits policy.Settings
	At     time.Time // UTC, to the second
}

// size returns the approximate bytes that the entry takes in a record.
func (e Exit) size() int {
	n := 80 + len(e.Container) + 21*len(e.CgroupIDs)
	for _, l := range e.Limits.Lines() {
		n += len(l.Text) + 3
	}
	return n
}

// WithExits returns the entries of both lists, and keeps the newest of them. An entry of
// after replaces one of before with the same cgroup IDs. The lists, which plans share, are
// not changed.
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

// WithEnded adds to seen those containers that a record lists as ended. Only their names
// are known.
func WithEnded(seen []policy.Container, exits []Exit) []policy.Container {
	for _, e := range exits {
		if !slices.ContainsFunc(seen, func(c policy.Container) bool { return c.Name == e.Container }) {
			seen = append(seen, policy.Container{Name: e.Container, Stage: policy.Ended})
		}
	}
	return seen
}
