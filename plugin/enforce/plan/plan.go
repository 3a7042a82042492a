// Package plan computes the desired settings and records of the cgroups of a pod. It is
// pure: no I/O, no clock, and the same input gives the same bytes.
package plan

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Plan has the desired state of the cgroups of a pod.
type Plan struct {
	Pod        Target // its Cgroup is "" if the pod has no cgroup of its own
	Containers []Target
}

// Target is the desired state of one cgroup.
type Target struct {
	Container string // its ID; "" for the pod's cgroup
	Cgroup    string // path below the cgroup root
	Want      policy.Settings
	Stale     []blkio.Replacement // values of the OCI spec, see OCISpec
	// Weights has the weights of the pod as a whole, also on single disks. Those on single disks are not in
	// Want, because the Keeper that divides a disk between pods can need another value in their place.
	Weights policy.Settings
	Granted policy.Desired // for the pod's cgroup: Want without the backstop
	// Partial is true if a failure of this program hides a part of the desired settings.
	// Then the recorded settings stay.
	Partial bool
	// Ended is true if no container of the pod runs. The pod's last settings stay then, for
	// the data that its containers have left to write.
	Ended  bool
	Record record.Record
	Room   int // largest size of the record, in bytes
}

// View is the state of a pod that its plan is computed from.
type View struct {
	Pod      Pod
	Running  []Container
	Controls Controls
	Drained  bool // no container runs, and none has left data to write
	Partial  bool // a container is known in part only
}

// Pod holds the facts about the pod as a whole.
type Pod struct {
	Namespace, Name, UID string
	Cgroup               string // "" if the pod has none, or shares it
	Policy               *policy.Pod
	Seen                 []policy.Container // the containers that have been created, by name
	// Complete is true once a full pass has seen a container of the pod run. From then on,
	// targets that no container has cause a warning.
	Complete bool
	Begun    bool            // a container of the sandbox has started
	Granted  *policy.Desired // what the pod as a whole was granted last; nil for nothing
	Exits    []record.Exit   // of containers that have ended
	Live     Live
}

// Live holds the facts about changes of a pod's annotations while the pod runs.
type Live struct {
	Edit     *podfacts.Edit // nil if the annotations and labels are those that the runtime reported
	Rejected error          // the reason why a later edit does not count; nil without such an edit
	Unknown  error          // the reason why an edit of the annotations would not be known; nil if it would be
}

// Container is a running container.
type Container struct {
	ID, Name, Cgroup string
	Desired          policy.Desired
	Lent             policy.Settings // what is lent to its pod, for the record
	// Policy is the one by which Desired was decided. After a reload, the pod may already have another
	// one. It is nil for the pod's.
	Policy *policy.Pod
	// Err is why the container does not get all that it requests or, if Undecided, why that
	// is not known.
	Err  error
	Spec OCISpec
	Gaps
	// Unvetted is true while the budget of its namespace had no room for it, or could not be asked.
	Unvetted bool
}

// Gaps are what is not known about a container yet.
type Gaps struct {
	Undecided bool // its settings
	Partial   bool // some of its disks
}

// New returns the plan of a pod.
func New(v View) Plan {
	observed := v.Pod.Policy.Mode() == policy.ModeObserve
	edit := v.Pod.Live.Edit.Size()
	room := record.Room(len(v.Running), edit)
	out := Plan{}
	if v.Pod.Cgroup != "" {
		out.Pod = podTarget(&v, observed)
	}
	out.Pod.Room = min(record.MaxSize, room+edit)
	for i := range v.Running {
		if c := &v.Running[i]; c.Cgroup != "" {
			t := v.containerTarget(c, c.isObserved(observed))
			t.Room = room
			out.Containers = append(out.Containers, t)
		}
	}
	return out
}

// isObserved reports whether the settings of a container are only observed. They are as those of its pod
// if they were decided by the pod's policy.
func (c *Container) isObserved(pod bool) bool {
	if c.Policy == nil {
		return pod
	}
	return c.Policy.Mode() == policy.ModeObserve
}
