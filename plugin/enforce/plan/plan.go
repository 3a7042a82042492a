// Package plan decides what should be on the cgroups of a pod: the settings, and the record
// of them. It is pure: no I/O, no clock, and the same input gives the same bytes.
package plan

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Plan is what should be on the cgroups of a pod.
type Plan struct {
	Pod        Target // without a Cgroup if there is none that is the pod's alone
	Containers []Target
}

// Target is one cgroup and what should be on it.
type Target struct {
	Container string // its ID; "" for the pod's cgroup
	Cgroup    string // below the cgroup root
	Want      policy.Settings
	Spec      Spec
	Granted   policy.Desired // for the pod's cgroup: what Want is without the backstop
	// Partial is true if not all that is desired is known, by a failure of this program.
	// Then what is recorded stays.
	Partial bool
	// Ended is true if no container of the pod runs. What the pod was granted last stays, for
	// what they have left to write.
	Ended  bool
	Record record.Record
	Room   int // for the record, in bytes
}

// Spec compares the OCI spec of a container with what is wanted. The runtime writes its
// values back with each update, and crun keeps them on a cgroup of its own below the
// container's.
type Spec struct {
	Stale []blkio.Replacement // values that are not wanted any more, with what is
	// Unwanted are values that nothing is wanted for now: they are to go if this program put
	// them there, by Ours or by the cgroup's record.
	Unwanted []blkio.Replacement
	Ours     bool // the container's creation put all of them there
}

// View is what a plan is made of.
type View struct {
	Pod     Pod
	Running []Container
	// Unknown is what running containers were granted that only the cgroups show.
	Unknown []policy.Desired
	Weights Weights
	Drained bool // no container runs, and none has left anything to write
	Partial bool // not all is known of some container
}

// Pod is what is known of the pod as a whole.
type Pod struct {
	Namespace, Name, UID, Handler string
	Cgroup                        string // "" if the pod has none, or not for itself
	Request                       *annotation.Request
	Seen                          []policy.Container // all that came so far, by name
	// Complete is true once a full pass has seen containers of the pod run: targets that no
	// container has are worth a warning then.
	Complete bool
	Granted  policy.Desired // so far, to the pod as a whole
	Exits    []record.Exit
}

// Container is a running container.
type Container struct {
	ID, Name, Cgroup string
	Desired          policy.Desired
	// Err is what the container asks for and does not get, or with Undecided why that is not
	// known yet.
	Err       error
	Undecided bool
	Partial   bool // not all of its disks are known
	Spec      OCISpec
}

// OCISpec is what the OCI spec of a container has in io.max and io.weight.
type OCISpec struct {
	Values policy.Settings
	Ours   bool // CreateContainer put them there, otherwise they may be another plugin's
}

// New returns the plan of a pod.
func New(pol *policy.Policy, v View) Plan {
	observed := pol.Mode == policy.ModeObserve
	room := record.Room(len(v.Running))
	out := Plan{Pod: Target{Room: room}}
	if v.Pod.Cgroup != "" {
		out.Pod = podTarget(pol, &v, observed)
		out.Pod.Room = room
	}
	for i := range v.Running {
		if c := &v.Running[i]; c.Cgroup != "" {
			t := v.containerTarget(c, observed)
			t.Room = room
			out.Containers = append(out.Containers, t)
		}
	}
	return out
}
