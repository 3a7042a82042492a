package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// tenantsPolicy has a class, bounds and a budget for the namespace of the tests.
const tenantsPolicy = `
classes: {small: {limits: ["* wbps=4Mi"]}, large: {limits: ["* wbps=64Mi"]}}
rules: [{name: tenants, match: {namespaces: [default]}, class: small, bounds: {max: ["* wbps=8Mi"]}}]
budgets: [{namespaces: [default], limits: ["* wbps=10Mi"]}]
`

// tenantManifest is a pod of a tenant, with its name, an annotation and its value.
const tenantManifest = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, annotations: {%s: %q}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %s, imagePullPolicy: Never, args: [sleep, --seconds, "100000"]}
`

// tenants are pods of the namespace.
type tenants struct{ cluster }

// create creates a pod.
func (c tenants) create(name, annotation, value string) {
	c.Helper()
	c.apply(fmt.Sprintf(tenantManifest, name, annotation, value, cri.Image))
}

// waits waits until the API server shows why a pod does not start.
func (c tenants) waits(name, reason string) {
	c.Helper()
	lab.Within(c.T, clusterDeadline, name+" waits", func() error {
		out := c.output("get", "pod", name, "-o", "jsonpath={.status.containerStatuses[*].state.waiting.message}")
		if !strings.Contains(out, reason) {
			return fmt.Errorf("it waits for %q, want %q", out, reason)
		}
		return nil
	})
}

// runs waits until the kubelet has started a pod, and verifies that its container has a limit.
func (c tenants) runs(name, wbps string) {
	c.Helper()
	lab.Within(c.T, clusterDeadline, name+" runs", func() error {
		running, err := lab.Node.CRI.Running(c.Context(), "io.kubernetes.pod.name", name)
		if err != nil {
			return err
		}
		k := running["c"]
		if k == nil {
			return errors.New(c.output("get", "pod", name))
		}
		return lab.CheckIOMax(k.Cgroup, lab.Disks{"vda": "wbps=" + wbps})
	})
}

// TestTenants verifies what the author of a pod sees of the policy: classes, bounds, and a budget, for which the kubelet waits
// until another pod of the namespace has ended. It runs in make proof only.
//
//e2e:proof
func TestTenants(t *testing.T) {
	lab.StartPlugin(t, "--only", "limits", "--policy", lab.PolicyFile(t, tenantsPolicy))
	c := tenants{startCluster(t)}
	each := lab.Limits + "containers"
	c.create("first", each, "* wbps=8Mi")
	c.runs("first", "8388608")
	c.create("second", "example.com/none", "")
	c.waits("second", "wbps=4Mi on disk vda exceeds the budget of namespace default: 8Mi of 10Mi are granted to 1 pod")
	c.create("above", each, "* wbps=9Mi")
	c.waits("above", "wbps=9Mi is above the bound (write at most 8Mi, bounds.max of rule tenants)")
	c.create("chosen", "class.blkio.noderesource.dev/containers", "large")
	c.waits("chosen", "bounds.max of rule tenants")
	c.kubectl("", "delete", "pod", "first")
	c.runs("second", "4194304")
}
