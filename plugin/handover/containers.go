package handover

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Containers holds the state of the containers of a node.
type Containers interface {
	// Watching notes that cgroups can be added to a watch from now on.
	Watching(Adder)
	// Lost notes that the watch has failed: no container is watched any more.
	Lost()
	// Ended notes that the last process of a cgroup has ended, and returns its container. It returns nil if
	// there is nothing to hand over.
	Ended(cgroup string) Ended
}

// Ended is a container that has ended.
type Ended interface {
	// Limits returns the lines that lift its limits.
	Limits() []blkio.Line
	// Alone calls fn while no other goroutine writes to the cgroups of its pod, or once ctx
	// has ended.
	Alone(ctx context.Context, fn func())
	// Lifted notes whether the limits were lifted.
	Lifted(bool)
	// Leftovers returns the container's pod, and the disks that the container could write to.
	Leftovers() *Leftovers
	// Counts reports whether this is the first report of its end.
	Counts() bool
	Log() logrus.FieldLogger
}

// Adder adds cgroups to a watch. It is a *cgroupfs.EmptyWatch.
type Adder interface{ Add(c cgroupfs.Cgroup) error }

// Kernel is the kernel's watch of cgroups for their last process. It is also a
// *cgroupfs.EmptyWatch.
type Kernel interface {
	Adder
	Run(ctx context.Context, urgent func(error), empty func(*cgroupfs.OpenCgroup)) error
	Close() error
}

// OpenCgroup is a cgroup that stays open until Close, also after it was removed. It is a *cgroupfs.OpenCgroup.
type OpenCgroup interface {
	Path() string
	Lift(lines []blkio.Line) error
	Close()
}
