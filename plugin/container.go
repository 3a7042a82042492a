package plugin

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// container is one container of a pod. Its fields are guarded by Plugin.mu, except while no
// other goroutine has it.
type container struct {
	identity
	life     lifecycle.Container // the phase, which only Plugin.handle changes
	pid      int                 // of the first process; 0 if the runtime does not name it, pidUntold before its start
	look     look
	disks    containerDisks
	use      diskUse
	decision decision
	// spec is what the runtime writes again with each update of the container's resources
	// (docs/reference/quirks.md).
	spec plan.OCISpec
	exit exitState
}

// identity is what a container is known by. It does not change.
type identity struct {
	id, name string
	pod      *pod
	cgroup   string // below the cgroup root
	arrival  int    // a later one of the same name replaces an earlier one; set with the registration
}

// look is the search for the disks of a container that is under way.
type look struct {
	token chan struct{} // holds a token while a goroutine looks into the container
	began time.Time     // zero if no look is under way
	again bool          // the disks may have become others since it began
	fresh bool          // the container is being created
	// notCompared is why the mounts were not compared, in the copy that the look has made.
	notCompared error
}

// containerDisks are the disks that a container was found to have.
type containerDisks struct {
	// source is the runtime's description, until all of it is resolved.
	source *containerSpec
	// follows is the part of it that another look needs, for a container whose disks may
	// become others while it runs, otherwise nil. propagates is true if that happens as the
	// host mounts something.
	follows    *containerSpec
	propagates bool
	// layer is where its writable layer is, which a restarted runtime does not move. It is
	// nil before the first look, which was during this registration with the runtime.
	layer        *inventory.Layer
	registration int
	facts        policy.Container
	beyond       []beyond
	// uncompared are its mounts in the OCI spec, until those that its first process has
	// were compared with them; nil if no path on the host can have been led elsewhere.
	uncompared []specMount
}

// diskUse is the I/O of a container on disks that no mount and no device of it declares.
type diskUse struct {
	reached []blkio.Disk // facts has those that the limits were decided with
	// charged is its I/O on other undeclared disks. The map is replaced, never changed.
	charged map[blkio.Dev]charge
	// unjudged is true if it ran before the plugin, until its I/O was looked at.
	unjudged  bool
	notJudged string // why the last look failed
}

// decision is what a container asks for and gets.
type decision struct {
	policy  *policy.Policy // by which it was decided; nil before
	desired policy.Desired
	err     error // what was asked and could not be granted
}

// exitState is what the end of a container needs.
type exitState struct {
	plan    exitPlan
	planned bool // the plan was computed
	// cgroupIDs are of its cgroup, from the first look at it until its end is recorded.
	cgroupIDs []uint64
}
