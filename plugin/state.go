package plugin

import (
	"cmp"
	"slices"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// pod is one sandbox that carries annotations of ours.
type pod struct {
	id, namespace, name, uid string
	handler                  string
	cgroup                   string // below the cgroup root; "" where the runtime named none
	request                  *policy.Request
	containers               map[string]*container // by ID
	warned                   bool                  // of targets that no container has
	plan                     *plan                 // nil after a change, see targets

	// writing holds a token while somebody writes the pod's cgroups, so that
	// two writers cannot interleave and leave the older values. A channel,
	// because a write to a dying disk can hang and waiters have deadlines.
	writing chan struct{}
}

// container is one container of such a pod.
type container struct {
	id, name string
	cgroup   string
	facts    policy.Container
	desired  policy.Desired
	err      error // what was asked and could not be granted
	// running is set from StartContainer until StopContainer: only then does
	// the container count for the pod's backstop.
	running bool
}

func newPod(sb *api.PodSandbox) (*pod, error) {
	cgroup, err := blkio.PodCgroup(sb.GetLinux().GetCgroupParent())
	return &pod{
		id:         sb.GetId(),
		namespace:  sb.GetNamespace(),
		name:       sb.GetName(),
		uid:        sb.GetUid(),
		handler:    sb.GetRuntimeHandler(),
		cgroup:     cgroup,
		request:    policy.ParseRequest(sb.GetAnnotations()),
		containers: map[string]*container{},
		writing:    make(chan struct{}, 1),
	}, err
}

// seen are the facts of the pod's containers, in the order of their names.
func (p *pod) seen() []policy.Container {
	out := make([]policy.Container, 0, len(p.containers))
	for _, c := range p.sorted() {
		out = append(out, c.facts)
	}
	return out
}

func (p *pod) sorted() []*container {
	out := make([]*container, 0, len(p.containers))
	for _, c := range p.containers {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	return out
}

// granted are the desires of the running containers.
func (p *pod) granted() []policy.Desired {
	var out []policy.Desired
	for _, c := range p.sorted() {
		if c.running {
			out = append(out, c.desired)
		}
	}
	return out
}
