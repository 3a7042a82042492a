package apiserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestReservedAnnotations verifies that, with the policies of deploy/kubernetes, only the platform can set the
// limits of pods in a reserved namespace. A policy takes effect some time after its creation.
func TestReservedAnnotations(t *testing.T) {
	c := cluster{t}
	const total, weight = "limits.blkio.noderesource.dev/pod-total", "weight.blkio.noderesource.dev/containers"
	const own, missing = "the platform sets the limits", "pods of this namespace need"
	for name, annotations := range map[string]string{"tenant": "{}", "limited": `{pod-io-limit: "* wbps=50Mi"}`} {
		c.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {blkio-annotations: reserved}, annotations: %s}}",
			name, annotations), "apply", "-f", "-")
	}
	c.policy("kubernetes/admission.yaml")
	c.admits(
		admission{"default", "another-namespace", weight, "50", ""},
		admission{"tenant", "no-annotation", "", "", ""},
		admission{"tenant", "another-annotation", "example.com/key", "x", ""},
		admission{"tenant", "weight", weight, "50", own},
		admission{"tenant", "limit", "limits.blkio.noderesource.dev/container.a", "* wbps=max", own},
		admission{"tenant", "tolerates-missing-plugins", "tolerate-missing-plugins.noderesource.dev", "true", own},
		admission{"limited", "without-the-limit", "", "", missing},
		admission{"limited", "with-the-limit", total, "* wbps=50Mi", ""},
		admission{"limited", "with-another-limit", total, "* wbps=max", own},
	)
	c.policy("kubernetes/admission-set.yaml")
	c.admits(
		admission{"tenant", "no-annotation", "", "", ""},
		admission{"limited", "without-the-limit", "", "", ""},
		admission{"limited", "with-another-limit", total, "* wbps=max", ""},
		admission{"limited", "weight", weight, "50", own},
	)
	c.reservesStatus()
	c.reservesClaims()
	c.reservesClosed()
	replaced := admission{"limited", "with-another-limit", total, "* wbps=max", ""}
	if out := c.kubectl(replaced.pod(), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.metadata.annotations}"); !strings.Contains(out, "50Mi") {
		c.Errorf("annotations %s", out)
	}
}

// reservesStatus: an update of a pod's status can change annotations as well.
func (c cluster) reservesStatus() {
	c.Helper()
	c.kubectl((&admission{"tenant", "status", "", "", ""}).pod(), "create", "-f", "-")
	for key, denied := range map[string]bool{"weight.blkio.noderesource.dev/containers": true, "example.com/key": false} {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "50"}}, "status": {"message": "x"}}`, key)
		out, err := kubectl("", "patch", "pod", "-n", "tenant", "status", "--subresource=status", "--type=merge", "-p", patch)
		if (err != nil) != denied || denied && !strings.Contains(out, "the platform sets the limits") {
			c.Errorf("patch the status and %s: %v: %s", key, err, out)
		}
	}
}

// reservesClaims: a claim has no limits of its own, and needs none.
func (c cluster) reservesClaims() {
	c.Helper()
	for key, denied := range map[string]bool{"limits.blkio.noderesource.dev": true, "example.com/key": false} {
		out, err := kubectl(ofClaim("limited", key, "wbps=50Mi"), "create", "--dry-run=server", "-f", "-")
		if (err != nil) != denied || denied && !strings.Contains(out, "the platform sets the limits") {
			c.Errorf("a claim with %s: %v: %s", key, err, out)
		}
	}
}

// reservesClosed: the platform may also require the plugins in a reserved namespace.
func (c cluster) reservesClosed() {
	c.Helper()
	const labels = `{blkio-annotations: reserved, blkio.noderesource.dev/fail-closed: "true"}`
	c.kubectl(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: both, labels: %s, annotations: {pod-io-limit: "* wbps=50Mi"}}}`, labels), "apply", "-f", "-")
	c.policy("admission/fail-closed.yaml")
	c.admits(
		admission{"both", "plain", "", "", ""},
		admission{"both", "requires-less", requiredPlugins + "/container.a", "[x] # nri-blkio", "denied request"},
		// Both policies deny this, and the API server returns the message of either.
		admission{"both", "tolerates", "tolerate-missing-plugins.noderesource.dev", "true", "denied request"},
	)
	plain := admission{"both", "plain", "", "", ""}
	c.eventually("both annotations of the platform", func() error {
		out, err := kubectl(plain.pod(), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.metadata.annotations}")
		if err == nil && (!strings.Contains(out, "50Mi") || !strings.Contains(out, "nri-blkio-validator")) {
			err = errors.New(out)
		}
		return err
	})
}

// policy applies a file of deploy until the end of the test.
func (c cluster) policy(name string) {
	manifest := readFile(c.T, deploy, name)
	c.Cleanup(func() {
		if out, err := kubectl(manifest, "delete", "-f", "-", "--ignore-not-found"); err != nil {
			c.Errorf("delete %s: %v: %s", name, err, out)
		}
	})
	c.kubectl(manifest, "apply", "--validate=strict", "-f", "-")
}

// admission is a pod with one annotation, and a part of the reason why it is denied, if it is.
type admission struct{ namespace, name, key, value, denied string }

func (a *admission) pod() string {
	annotations := "{}"
	if a.key != "" {
		annotations = fmt.Sprintf("{%q: %q}", a.key, a.value)
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, annotations: %s}, spec: {containers: [{name: a, image: x}]}}",
		a.namespace, a.name, annotations)
}

// admits asks the API server for pods, and creates none. One call asks for all.
func (c cluster) admits(pods ...admission) {
	c.Helper()
	var manifest []string
	for _, a := range pods {
		manifest = append(manifest, a.pod())
	}
	c.eventually("decisions of the API server", func() error {
		out, err := kubectl(strings.Join(manifest, "\n---\n"), "create", "--dry-run=server", "-f", "-")
		var errs []error
		for _, a := range pods {
			if !a.isIn(out) {
				errs = append(errs, fmt.Errorf("pod %s/%s: no decision with the denial %q", a.namespace, a.name, a.denied))
			}
		}
		if len(errs) > 0 {
			errs = append(errs, err, errors.New(out))
		}
		return errors.Join(errs...)
	})
}

// isIn reports whether the output of kubectl has the decision on the pod.
func (a *admission) isIn(out string) bool {
	for line := range strings.Lines(out) {
		if a.denied == "" && strings.HasPrefix(line, "pod/"+a.name+" created") {
			return true
		}
		if a.denied != "" && strings.Contains(line, fmt.Sprintf("%q", a.name)) && strings.Contains(line, a.denied) {
			return true
		}
	}
	return false
}
