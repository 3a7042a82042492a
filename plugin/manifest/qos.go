package manifest

import "k8s.io/apimachinery/pkg/api/resource"

// The QoS classes of pods.
const (
	Guaranteed = "Guaranteed"
	Burstable  = "Burstable"
	BestEffort = "BestEffort"
)

// qos returns the QoS class that the kubelet gives a pod: by the resources of the pod as a whole, if
// it has any, otherwise by those of its containers.
//
// Source: ComputePodQOS in Kubernetes' pkg/apis/core/v1/helper/qos/qos.go.
func (v value) qos() string {
	if whole := v.field("resources"); len(whole.pairs()) > 0 {
		return qosOf([]resources{whole.resources()})
	}
	var all []resources
	for _, list := range []string{"initContainers", "containers"} {
		for c := range v.field(list).items() {
			all = append(all, c.field("resources").resources())
		}
	}
	return qosOf(all)
}

// resources has the requests and limits of CPU and memory, in this order. One that is absent, or 0,
// is not set.
type resources struct{ requests, limits [2]resource.Quantity }

func (v value) resources() resources {
	var out resources
	for i, name := range []string{"cpu", "memory"} {
		limit, request := v.field("limits", name), v.field("requests", name)
		out.limits[i] = limit.quantity()
		if out.requests[i] = request.quantity(); !request.exists() {
			out.requests[i] = out.limits[i] // as the API server does
		}
	}
	return out
}

func qosOf(all []resources) string {
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
		return BestEffort
	case guaranteed:
		return Guaranteed
	}
	return Burstable
}
