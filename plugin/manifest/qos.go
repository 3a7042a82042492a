package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/policy"
)

// qos returns the QoS class that the kubelet gives a pod. The resources of the pod as a whole decide if it has
// the field, otherwise those of its containers.
//
// Source: ComputePodQOS in Kubernetes' pkg/apis/core/v1/helper/qos/qos.go.
func (v value) qos() policy.QOS {
	whole := v.field("resources")
	if !whole.exists() {
		return qosOf(slices.Concat(v.resourcesOf("initContainers"), v.resourcesOf("containers")))
	}
	r := whole.resources()
	if len(whole.field("limits").pairs()) > 0 {
		r.addRequests(v.resourcesOf("containers"), v.resourcesOf("initContainers"))
	}
	return qosOf([]resources{r})
}

// resources has the requests and limits of CPU and memory, in this order. One that is absent, or 0,
// is not set.
type resources struct {
	requests, limits [2]resource.Quantity
	hasRequest       [2]bool // true if it is written, or the limit of a container stands for it
	isSidecar        bool
}

// resources returns the requests and limits of a container or a pod.
func (v value) resources() (out resources) {
	for i, name := range []string{"cpu", "memory"} {
		limit, request := v.field("limits", name), v.field("requests", name)
		out.limits[i], out.requests[i], out.hasRequest[i] = limit.quantity(), request.quantity(), request.exists()
	}
	return out
}

// resourcesOf returns the resources of a list of containers. As in the API server, a request that is
// absent is the limit.
func (v value) resourcesOf(list string) (out []resources) {
	for c := range v.field(list).items() {
		r := c.field("resources").resources()
		for i, name := range []string{"cpu", "memory"} {
			if !r.hasRequest[i] {
				r.requests[i], r.hasRequest[i] = r.limits[i], c.field("resources", "limits", name).exists()
			}
		}
		r.isSidecar = c.field("restartPolicy").text() == "Always"
		out = append(out, r)
	}
	return out
}

// addRequests sets the requests of a pod that are absent: to that of all containers together, if one of
// them has it, otherwise to the pod's limit.
//
// Source: defaultPodRequests in Kubernetes' pkg/apis/core/v1/defaults.go, AggregateContainerRequests in
// component-helpers/resource/helpers.go.
func (r *resources) addRequests(containers, initContainers []resources) {
	for i := range r.requests {
		if r.hasRequest[i] {
			continue
		}
		r.requests[i] = r.limits[i]
		var sum, sidecars, most resource.Quantity // most is the largest sum during an init container
		has := false
		for k := range containers {
			sum.Add(containers[k].requests[i])
			has = has || containers[k].hasRequest[i]
		}
		for k := range initContainers {
			during := sidecars.DeepCopy()
			if during.Add(initContainers[k].requests[i]); initContainers[k].isSidecar {
				sum.Add(initContainers[k].requests[i])
				sidecars = during
			}
			if during.Cmp(most) > 0 {
				most = during
			}
			has = has || initContainers[k].hasRequest[i]
		}
		if most.Cmp(sum) > 0 {
			sum = most
		}
		if has {
			r.requests[i] = sum
		}
	}
}

func qosOf(all []resources) policy.QOS {
	guaranteed, none := len(all) > 0, true
	for i := range all {
		for k := range all[i].limits {
			limit, request := &all[i].limits[k], &all[i].requests[k]
			none = none && limit.IsZero() && request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && limit.Cmp(*request) == 0
		}
	}
	switch {
	case none:
		return policy.BestEffort
	case guaranteed:
		return policy.Guaranteed
	}
	return policy.Burstable
}
