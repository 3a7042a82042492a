package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestQOS: the QoS class that the kubelet would give a pod.
func TestQOS(t *testing.T) {
	const full = "{limits: {cpu: 1, memory: 1Gi}}"
	for _, tt := range []struct{ name, spec, want string }{
		{"nothing", "containers: [{name: a}]", BestEffort},
		{"zero", "containers: [{name: a, resources: {requests: {cpu: 0}, limits: {memory: 0}}}]", BestEffort},
		{"another resource", "containers: [{name: a, resources: {limits: {ephemeral-storage: 1Gi}}}]", BestEffort},
		{"a request", "containers: [{name: a, resources: {requests: {cpu: 100m}}}]", Burstable},
		{"one limit", "containers: [{name: a, resources: {limits: {memory: 1Gi}}}]", Burstable},
		{"limits", "containers: [{name: a, resources: " + full + "}]", Guaranteed},
		{"equal requests", "containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}}}]", Guaranteed},
		{"lower requests", "containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}}]", Burstable},
		{"one container without", "containers: [{name: a, resources: " + full + "}, {name: b}]", Burstable},
		{"an init container without", "initContainers: [{name: i}], containers: [{name: a, resources: " + full + "}]", Burstable},
		{"an ephemeral container without", "ephemeralContainers: [{name: e}], containers: [{name: a, resources: " + full + "}]", Guaranteed},
		{"the pod as a whole", "resources: " + full + ", containers: [{name: a}]", Guaranteed},
		{"a part of the pod as a whole", "resources: {limits: {cpu: 1}}, containers: [{name: a, resources: " + full + "}]", Burstable},
	} {
		if got := onePod(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {"+tt.spec+"}}").QOS; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestLabels: the labels are those of the pod template, not of the object around it.
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
