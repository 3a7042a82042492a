package node

import (
	"path"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Sandbox is a pod's sandbox as the runtime describes it.
type Sandbox struct {
	ID, Namespace, Name, UID string
	Labels                   map[string]string
	Handler                  string // runtime handler of its RuntimeClass
	Cgroup                   string // the parent of its containers' cgroups, in the runtime's notation
	Annotations              map[string]string
}

// Facts returns the facts about a pod that a policy depends on.
func (sb *Sandbox) Facts() policy.PodFacts {
	return FactsOf(sb.Namespace, sb.Labels, sb.Handler, sb.Cgroup)
}

// FactsOf returns the facts about a pod that a policy depends on. cgroup is Sandbox.Cgroup.
func FactsOf(namespace string, labels map[string]string, handler, cgroup string) policy.PodFacts {
	return policy.PodFacts{Namespace: namespace, Labels: labels, QOS: qosOf(cgroup), Handler: handler}
}

// qosOf returns the QoS class of a pod by the parent of its containers' cgroups, which the kubelet
// names, or "":
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice    systemd
//	/kubepods/burstable/podUID                                                  cgroupfs
//
// Source: podContainerManagerImpl.GetPodContainerName in Kubernetes'
// pkg/kubelet/cm/pod_container_manager_linux.go.
func qosOf(cgroup string) policy.QOS {
	parent, pod := path.Split(cgroup)
	name, isSlice := strings.CutSuffix(pod, ".slice")
	if isSlice {
		i := strings.LastIndex(name, "-pod")
		if i < 0 {
			return ""
		}
		parent = name[:i]
	} else if !strings.HasPrefix(pod, "pod") {
		return ""
	}
	parent = strings.TrimSuffix(parent, "/")
	switch {
	case strings.HasSuffix(parent, "besteffort"):
		return policy.BestEffort
	case strings.HasSuffix(parent, "burstable"):
		return policy.Burstable
	case strings.HasSuffix(parent, "kubepods"):
		return policy.Guaranteed
	}
	return ""
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
	// Spec returns the facts by which its disks are found. It is computed on demand, because the mounts are a
	// tenant's text and may be many.
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

// describe formats desired settings for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, l := range d.Settings.Lines() {
		if name, isDisk := d.Disks[l.Dev]; isDisk && l.File == blkio.IOMax {
			out = append(out, strings.Replace(l.Text, l.Dev.String(), name, 1))
		} else {
			out = append(out, l.String())
		}
	}
	return out
}
