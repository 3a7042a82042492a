package node

import (
	"strconv"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has pods and containers as the runtime describes them.

// Sandbox is a pod's sandbox as the runtime describes it.
type Sandbox struct {
	ID, UID string
	Handler string // runtime handler of its RuntimeClass
	Cgroup  string // the parent of its containers' cgroups, in the runtime's notation
	podfacts.Facts
}

// request returns what is requested by the sandbox, and whether labels were dropped that are too long.
func (sb *Sandbox) request(pol *policy.Policy) (r *podfacts.Request, isCut bool) {
	facts, isCut := sb.WithinRoom(pol)
	if facts.Annotations == nil {
		facts.Annotations = map[string]string{} // it is known that there are none
	}
	return facts.Request(podfacts.QOSOf(sb.Cgroup), sb.Handler), isCut
}

// newPod returns the identity of a pod with the facts that are kept, and whether labels were dropped.
func newPod(sb *Sandbox, pol *policy.Policy) (_ podIdentity, isCut bool) {
	r, isCut := sb.request(pol)
	out := podIdentity{&fixedFacts{id: sb.ID, namespace: sb.Namespace, name: sb.Name, uid: sb.UID}}
	out.request.now.Store(r)
	return out, isCut
}

// reported is a sandbox as the runtime has reported it.
type reported struct {
	podIdentity
	cgroup      string
	isConcerned bool // something concerns it by itself
}

// Container is a container as the runtime describes it.
type Container struct {
	ID, Name  string
	Sandbox   string // its ID
	Cgroup    string // in the runtime's notation
	PID       int    // process ID of the first process, 0 if the runtime does not name it
	State     State
	CreatedAt int64
	OCI
	// Spec returns the facts by which its disks are found. Each call makes them anew, and the caller may change them: the mounts are
	// a tenant's text and may be many.
	Spec func() *inventory.Spec
}

// OCI has facts about the OCI spec of a container.
type OCI struct {
	MemoryMax int64             // memory.max in bytes, 0 without a limit
	Unified   map[string]string // the files of its cgroup that the runtime writes
	Mark      string            // see plan.Mark; "" for a container that was not decided
}

// State is the state of a container in the list of the runtime.
type State int

// The states. A container in any other state counts as stopped.
const (
	Stopped State = iota
	Created
	Running // includes paused containers
)

// memoryLimit returns a container's memory limit in bytes. memory.high comes from the kubelet's MemoryQoS
// ("max" where that is disabled), from another plugin, or from the plugin's own dirtyGuard. Two plugins that
// set it fail the creation.
func (c *Container) memoryLimit() uint64 {
	limit := policy.NoMemory
	if c.MemoryMax > 0 {
		limit = uint64(c.MemoryMax)
	}
	if high, isSet := c.Unified["memory.high"]; isSet {
		if bytes, err := strconv.ParseUint(high, 10, 64); err == nil {
			limit = min(limit, bytes)
		}
	}
	return limit
}

func (sb *Sandbox) named() podevent.Pod {
	return podevent.Pod{UID: sb.UID, Namespace: sb.Namespace, Name: sb.Name}
}
