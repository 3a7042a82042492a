package node

import (
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// container is one container of a pod, as part of the state.
type container struct{ snapshot }

// snapshot is what is known of a container at a moment. What it refers to is not changed, so
// that a copy of it needs no lock.
type snapshot struct {
	identity
	life       lifecycle.Container // the phase, which only state.handle changes
	pid        int                 // of the first process; 0 if the runtime does not name it, pidUnknown before its start
	resolution resolution
	layer      ownLayer
	disks      inventory.Container
	use        ioUse
	decision   decision
	// spec is what the runtime writes again with each update of the container's resources
	// (docs/reference/quirks.md).
	spec plan.OCISpec
	exit exitState
}

// identity is what a container is known by. It does not change.
type identity struct {
	ref      containerRef // set with the registration
	id, name string
	pod      podIdentity
	cgroup   string // below the cgroup root
	// memoryLimit is the lower one of memory.max and memory.high in bytes, or policy.NoMemory.
	memoryLimit uint64
	arrival     int // a later one of the same name replaces an earlier one; set with the registration
	// token is held by the goroutine that looks into the container.
	token chan struct{}
}

// containerRef refers to a container. One that is created again is another one.
type containerRef = guard.Ref[state, container]

// in returns the container. It may have left the state.
func (c identity) in(s *state) *container { return c.ref.In(s) }

// resolution is the search for the disks of a container, while it is under way.
type resolution struct {
	began time.Time // zero if none is under way
	again bool      // the disks may have become others since it began
	fresh bool      // the container is being created
	// notCompared is why the mounts were not compared, in the copy that it works on.
	notCompared error
}

func (r *resolution) stage() policy.Stage {
	if r.fresh {
		return policy.Created
	}
	return policy.Running
}

// ownLayer is where the writable layer of a container is, which a restarted runtime does not
// move.
type ownLayer struct {
	at           *inventory.Layer // nil before the first look
	registration int              // of the plugin with the runtime, during the first look
}

// ioUse is the I/O of a container on disks that no mount and no device of it declares.
type ioUse struct {
	seen inventory.Usage // Container.Facts has those disks that the limits were decided with
	// unjudged is true if it ran before the plugin, until its I/O was looked at.
	unjudged  bool
	notJudged string // why the last look failed
}

// decision is what a container asks for and gets.
type decision struct {
	policy  *policy.Pod // by which it was decided; nil before
	desired policy.Desired
	err     error // what was asked and could not be granted
}

// exitState is what the end of a container needs.
type exitState struct {
	plan handover.Plan
	// planned is true if the plan was computed, and for a container that had no limits while it was a
	// bystander. It is false while the hand-over is switched off.
	planned bool
	// cgroupIDs are of its cgroup, from the first look at it until its end is recorded.
	cgroupIDs []uint64
}
