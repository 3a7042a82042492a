package apiserver

import (
	"fmt"
	"strings"
	"testing"
)

// requiredPlugins has the runtime refuse a container if a plugin is missing.
const requiredPlugins = "required-plugins.noderesource.dev"

// TestAdmission verifies that, with the policies of deploy/admission, the API server rejects wrong annotations
// and those that a namespace may not use, and requires the plugins in fail-closed namespaces. It has one case
// for each rule; test/admission has all cases.
func TestAdmission(t *testing.T) {
	c := cluster{t}
	const each, total = "limits.blkio.noderesource.dev/containers", "limits.blkio.noderesource.dev/pod-total"
	const weight, class = "weight.blkio.noderesource.dev/containers", "class.blkio.noderesource.dev/containers"
	const tolerates = "tolerate-missing-plugins.noderesource.dev"
	for name, label := range map[string]string{
		"only-limits": "blkio.noderesource.dev/allow: limits", "nothing": "blkio.noderesource.dev/allow: none",
		"mistyped": "blkio.noderesource.dev/allow: limit", "closed": `blkio.noderesource.dev/fail-closed: "true"`,
	} {
		c.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, label), "apply", "-f", "-")
	}
	for _, file := range []string{"grammar", "tenants", "fail-closed"} {
		c.policy("admission/" + file + ".yaml")
	}
	const mayNot = "may not have this annotation"
	c.admits(
		admission{"default", "no-annotation", "", "", ""},
		admission{"default", "valid", each, `/data wbps=50Mi; "/with blank" riops=2k`, ""},
		admission{"default", "valid-weight", weight, "/data 500; * 100", ""},
		admission{"default", "key", each, "/data wpbs=50Mi", `entry 1 "/data wpbs=50Mi": unknown key`},
		admission{"default", "value", total, "/data wbps=50MB", "invalid quantity (write a whole number such as 50Mi)"},
		admission{"default", "zero", total, "/data wbps=0", "stops all I/O (write max for no limit)"},
		admission{"default", "duplicate", total, "/data wbps=1Mi; /data/ rbps=1Mi", "duplicate target"},
		admission{"default", "wrong-weight", weight, "0", "invalid weight (write a whole number from 1 to 10000"},
		admission{"default", "scope", "limits.blkio.noderesource.dev/pod", "* wbps=1Mi", "/pod-total for the pod as a whole"},
		admission{"default", "kind", "limit.blkio.noderesource.dev/containers", "* wbps=1Mi", "unknown annotation"},
		admission{"only-limits", "limits-there", each, "* wbps=1Mi", ""},
		admission{"only-limits", "weight-there", weight, "5", mayNot},
		admission{"nothing", "limits-nowhere", each, "* wbps=1Mi", mayNot},
		admission{"nothing", "class-nowhere", class, "bronze", class},
		admission{"nothing", "another-annotation", "example.com/key", "x", ""},
		admission{"mistyped", "of-a-wrong-label", each, "* wbps=1Mi", `invalid value "limit"`},
		admission{"closed", "closed", "", "", ""},
		admission{"closed", "tolerates", tolerates, "true", tolerates},
		admission{"closed", "hides", requiredPlugins, "[] # nri-blkio, nri-blkio-validator", "need a list with these plugins"},
	)
	for value, want := range map[string]string{"[]": "[nri-blkio, nri-blkio-validator]", "- devices": "[devices, nri-blkio, nri-blkio-validator]"} {
		a := admission{"closed", "requires", requiredPlugins, value, ""}
		if out := c.kubectl(a.pod(), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.metadata.annotations}"); !strings.Contains(out, `"`+want+`"`) {
			c.Errorf("%s: annotations %s, want %s", value, out, want)
		}
	}
	c.rejectsWorkloads()
}

// rejectsWorkloads: the template of a workload is read like a pod.
func (c cluster) rejectsWorkloads() {
	const template = "{metadata: {labels: {a: b}, annotations: {weight.blkio.noderesource.dev/containers: %q}}, spec: {restartPolicy: %s, containers: [{name: a, image: x}]}}"
	for kind, spec := range map[string]string{
		"apps/v1, kind: Deployment": "{selector: {matchLabels: {a: b}}, template: %s}",
		"batch/v1, kind: CronJob":   "{schedule: '0 0 * * *', jobTemplate: {spec: {template: %s}}}",
	} {
		restart := "Always"
		if strings.Contains(kind, "Job") {
			restart = "Never"
		}
		for weight, isValid := range map[string]bool{"5": true, "5x": false} {
			object := fmt.Sprintf("{apiVersion: %s, metadata: {name: w}, spec: "+spec+"}", kind, fmt.Sprintf(template, weight, restart))
			out, err := kubectl(object, "create", "--dry-run=server", "-f", "-")
			if (err == nil) != isValid || !isValid && !strings.Contains(out, "invalid weight") {
				c.Errorf("%s with weight %s: %v: %s", kind, weight, err, out)
			}
		}
	}
}
