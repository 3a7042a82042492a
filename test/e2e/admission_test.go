package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// reservesAnnotations: with the policies of deploy/kubernetes only the platform sets the limits
// of pods in a reserved namespace.
func (c cluster) reservesAnnotations() {
	const reserve, set = "admission.yaml", "admission-set.yaml"
	c.policy(reserve)
	for name, limit := range map[string]string{"tenant": "", "limited": "* wbps=50Mi"} {
		c.reservedNamespace(name, limit)
	}
	const total, weight = "limits.blkio.noderesource.dev/pod-total", "weight.blkio.noderesource.dev/containers"
	// A policy takes effect some time after it was created.
	eventually(c.T, "policy that reserves annotations", func() error {
		if out, err := annotated("tenant", weight, "50"); err == nil {
			return fmt.Errorf("a pod with a weight is admitted: %s", out)
		}
		return nil
	})
	const own, missing = "the platform sets the limits", "pods of this namespace need"
	c.decides([]admission{
		{"default", "with a weight", weight, "50", ""},
		{"tenant", "without annotations", "", "", ""},
		{"tenant", "with another annotation", "example.com/key", "x", ""},
		{"tenant", "with a weight", weight, "50", own},
		{"tenant", "with a limit", "limits.blkio.noderesource.dev/container.a", "* wbps=max", own},
		{"tenant", "that tolerates missing plugins", "tolerate-missing-plugins.noderesource.dev", "true", own},
		{"limited", "without the limit", "", "", missing},
		{"limited", "with the limit", total, "* wbps=50Mi", ""},
		{"limited", "with another limit", total, "* wbps=max", own},
	})
	c.policy(set)
	eventually(c.T, "policy that sets the limit", func() error {
		out, err := annotated("limited", "", "")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.decides([]admission{
		{"tenant", "without annotations", "", "", ""},
		{"limited", "without the limit", "", "", ""},
		{"limited", "with another limit", total, "* wbps=max", ""},
		{"limited", "with a weight", weight, "50", own},
	})
	if out, err := annotated("limited", total, "* wbps=max", "-o", "jsonpath={.metadata.annotations}"); err != nil || !strings.Contains(out, "50Mi") {
		c.Errorf("the annotations of a pod: %v: %s", err, out)
	}
}

// policy applies a file of deploy/kubernetes until the end of the test.
func (c cluster) policy(name string) {
	manifest := readManifest(c.T, filepath.Join(node.payload, "deploy", profileDefault, name))
	c.Cleanup(func() {
		if out, err := kubectl(manifest, "delete", "-f", "-", "--ignore-not-found"); err != nil {
			c.Errorf("delete %s: %v: %s", name, err, out)
		}
	})
	c.kubectl(manifest, "apply", "--validate=strict", "-f", "-")
}

// reservedNamespace creates a namespace whose pods must have a limit, none if that is empty.
func (c cluster) reservedNamespace(name, limit string) {
	annotations := "{}"
	if limit != "" {
		annotations = fmt.Sprintf("{pod-io-limit: %q}", limit)
	}
	c.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {blkio-annotations: reserved}, annotations: %s}}",
		name, annotations), "apply", "-f", "-")
}

// admission is a pod with one annotation, and a part of the reason why it is denied, if it is.
type admission struct{ namespace, name, key, value, denied string }

func (c cluster) decides(cases []admission) {
	for _, tt := range cases {
		c.Run(tt.namespace+" "+tt.name, func(t *testing.T) {
			switch out, err := annotated(tt.namespace, tt.key, tt.value); {
			case tt.denied == "" && err != nil:
				t.Errorf("%v: %s", err, out)
			case tt.denied != "" && (err == nil || !strings.Contains(out, tt.denied)):
				t.Errorf("got %q, want a denial with %q", out, tt.denied)
			}
		})
	}
}

// annotated asks the API server for a pod with one annotation, and creates none.
func annotated(namespace, key, value string, args ...string) (string, error) {
	annotations := "{}"
	if key != "" {
		annotations = fmt.Sprintf("{%q: %q}", key, value)
	}
	return kubectl(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: asked, annotations: %s}, spec: {containers: [{name: a, image: x}]}}",
		annotations), append([]string{"create", "--dry-run=server", "-n", namespace, "-f", "-"}, args...)...)
}
