package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestQOS covers the QoS class that the kubelet would give a pod.
func TestQOS(t *testing.T) {
	const full = "{limits: {cpu: 1, memory: 1Gi}}"
	for _, tt := range []struct {
		name, spec string
		want       policy.QOS
	}{
		{"nothing", "containers: [{name: a}]", policy.BestEffort},
		{"zero", "containers: [{name: a, resources: {requests: {cpu: 0}, limits: {memory: 0}}}]", policy.BestEffort},
		{"another resource", "containers: [{name: a, resources: {limits: {ephemeral-storage: 1Gi}}}]", policy.BestEffort},
		{"a request", "containers: [{name: a, resources: {requests: {cpu: 100m}}}]", policy.Burstable},
		{"one limit", "containers: [{name: a, resources: {limits: {memory: 1Gi}}}]", policy.Burstable},
		{"limits", "containers: [{name: a, resources: " + full + "}]", policy.Guaranteed},
		{"equal requests", "containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}}}]", policy.Guaranteed},
		{"lower requests", "containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}}]", policy.Burstable},
		{"other notations", "containers: [{name: a, resources: {requests: {cpu: 0.5, memory: 1e9}, limits: {cpu: 500m, memory: 1000M}}}]", policy.Guaranteed},
		{"higher requests", "containers: [{name: a, resources: {requests: {cpu: 2}, limits: {cpu: 1, memory: 1Gi}}}]", policy.Burstable},
		{"requests of 0", "containers: [{name: a, resources: {requests: {cpu: 0}, limits: {cpu: 1, memory: 1Gi}}}]", policy.Burstable},
		{"requests of null", "containers: [{name: a, resources: {requests: {cpu: null, memory: }, limits: {cpu: 1, memory: 1Gi}}}]", policy.Guaranteed},
		{"no requests", "containers: [{name: a, resources: {requests: null, limits: {cpu: 1, memory: 1Gi}}}]", policy.Guaranteed},
		{"limits of two containers", "containers: [{name: a, resources: {limits: {cpu: 1}}}, {name: b, resources: {limits: {memory: 1Gi}}}]", policy.Burstable},
		{"a sidecar without", "initContainers: [{name: i, restartPolicy: Always}], containers: [{name: a, resources: " + full + "}]", policy.Burstable},
		{"resources of the pod that are empty", "resources: {}, containers: [{name: a, resources: " + full + "}]", policy.BestEffort},
		{"resources of the pod that are null", "resources: , containers: [{name: a, resources: " + full + "}]", policy.Guaranteed},
		{"resources of the pod that are others", "resources: {limits: {hugepages-2Mi: 1Gi}}, containers: [{name: a, resources: " + full + "}]", policy.Burstable},
		{"requests of the pod only", "resources: {requests: {memory: 1Gi}}, containers: [{name: a, resources: " + full + "}]", policy.Burstable},
		{"one container without", "containers: [{name: a, resources: " + full + "}, {name: b}]", policy.Burstable},
		{"an init container without", "initContainers: [{name: i}], containers: [{name: a, resources: " + full + "}]", policy.Burstable},
		{"an ephemeral container without", "ephemeralContainers: [{name: e}], containers: [{name: a, resources: " + full + "}]", policy.Guaranteed},
		{"the pod as a whole", "resources: " + full + ", containers: [{name: a}]", policy.Guaranteed},
		{"a part of the pod as a whole", "resources: {limits: {cpu: 1}}, containers: [{name: a, resources: " + full + "}]", policy.Burstable},
	} {
		if got := onePod(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {"+tt.spec+"}}").QOS; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestQOSOfRequests verifies the requests of a pod that as a whole has limits and no requests. They are those
// of all containers that run together, or of an init container if it has more.
func TestQOSOfRequests(t *testing.T) {
	const whole = "resources: {limits: {cpu: 2, memory: 2Gi}}, " // the last field of a name holds
	for _, tt := range []struct {
		name, spec string
		want       policy.QOS
	}{
		{"none", "containers: [{name: a}, {name: b}]", policy.Guaranteed},
		{"less", "containers: [{name: a, resources: {requests: {cpu: 1}}}]", policy.Burstable},
		{"a request of 0", "containers: [{name: a, resources: {requests: {cpu: 0}}}]", policy.Burstable},
		{"as much together", "containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {requests: {cpu: 1000m}}}]", policy.Guaranteed},
		{"a limit of a container", "containers: [{name: a, resources: {limits: {memory: 1Gi}}}]", policy.Burstable},
		{"as much with a sidecar", "initContainers: [{name: i, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}], containers: [{name: a, resources: {requests: {memory: 1Gi}}}]", policy.Guaranteed},
		{"an init container beside a sidecar", "initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 1}}}], containers: [{name: a}]", policy.Guaranteed},
		{"an init container before a sidecar", "initContainers: [{name: i, resources: {requests: {cpu: 1}}}, {name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}], containers: [{name: a}]", policy.Burstable},
		{"requests of the pod itself", "resources: {requests: {cpu: 2, memory: 2048Mi}, limits: {cpu: 2, memory: 2Gi}}, containers: [{name: a, resources: {requests: {cpu: 1}}}]", policy.Guaranteed},
		{"an init container with more", "initContainers: [{name: i, resources: {limits: {cpu: 2}}}], containers: [{name: a, resources: {requests: {cpu: 1}}}]", policy.Guaranteed},
	} {
		if got := onePod(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {"+whole+tt.spec+"}}").QOS; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestLabels verifies that the labels are those of the pod template, not of the object around it.
func TestLabels(t *testing.T) {
	p := onePod(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: prod, labels: {tier: outer}}
spec:
  template:
    metadata: {labels: {tier: batch, "1": "2"}}
    spec: {containers: [{name: a}]}
`)
	if diff := cmp.Diff(map[string]string{"tier": "batch", "1": "2"}, p.Labels); diff != "" || p.Namespace != "prod" {
		t.Errorf("%s: -want +got:\n%s", p.Namespace, diff)
	}
	if set := mustRead(t, "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: 1}}, spec: {containers: [{name: a, resources: {limits: {cpu: 1e99999}}}]}}"); len(set.Findings) < 2 {
		t.Errorf("a label that is a number, and no quantity: %s", render(&set))
	}
}
