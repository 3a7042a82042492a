package apiserver

import (
	"errors"
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
	c.rejectsClaims()
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

// rejectsClaims: limits of claims, of templates of claims, and of classes are read as well.
func (c cluster) rejectsClaims() {
	c.Helper()
	const unknown, mayNot = "unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)", "limits.blkio.noderesource.dev: claims of namespace nothing may not have this annotation"
	for _, tt := range []struct{ manifest, want string }{
		{ofClaim("default", "limits.blkio.noderesource.dev", "rbps=200Mi wbps=50Mi"), "persistentvolumeclaim/data created"},
		{ofClaim("default", "limits.blkio.noderesource.dev", "wpbs=50Mi"), unknown},
		{ofClaim("default", "limits.blkio.noderesource.dev", "* wbps=50Mi; rbps=1"), "the first word is a target"},
		{ofClaim("default", "limits.blkio.noderesource.dev", "* wbps=50Mi"), "limits with targets are those of a pod, and have no effect on a claim"},
		{ofClaim("default", "limits.blkio.noderesource.dev", "* wbps=50Mi"), "persistentvolumeclaim/data created"},
		{ofClaim("default", "limit.blkio.noderesource.dev", "wbps=50Mi"), "unknown annotation of a claim"},
		{ofClaim("default", "limits.blkio.noderesource.dev/containers", "* wbps=50Mi"), "the annotation has no effect on a claim"},
		{ofClaim("default", "limits.blkio.noderesource.dev/containers", "* wbps=50Mi"), "persistentvolumeclaim/data created"},
		{ofClaim("nothing", "limits.blkio.noderesource.dev", "wbps=50Mi"), mayNot},
		{ofClaim("nothing", "example.com/a", "b"), "persistentvolumeclaim/data created"},
		{ofClaim("only-limits", "limits.blkio.noderesource.dev", "wbps=50Mi"), "persistentvolumeclaim/data created"},
		{ofSet("default", "wbps=50Mi"), "statefulset.apps/db created"},
		{ofSet("default", "wpbs=50Mi"), unknown},
		{ofSet("nothing", "wbps=50Mi"), mayNot},
		{ofClass("{blkio.noderesource.dev/wbps: 50Mi, rbps: x}"), "volumeattributesclass.storage.k8s.io/slow created"},
		{ofClass("{blkio.noderesource.dev/bps: 50Mi, blkio.noderesource.dev/iops: 2k, iops: '3000'}"), "volumeattributesclass.storage.k8s.io/slow created"},
		{ofClass("{blkio.noderesource.dev/bps: 50Mi, blkio.noderesource.dev/wbps: 2k}"), "the keys set the same limit"},
		{ofClass("{blkio.noderesource.dev/wpbs: 50Mi}"), unknown},
		{ofClass("{blkio.noderesource.dev/wbps: '0'}"), `parameters: "blkio.noderesource.dev/wbps=0": a rate of 0 stops all I/O`},
		{ofClass("{blkio.noderesource.dev/wbps: 50MB}"), "invalid quantity"},
	} {
		c.eventually("a decision on "+tt.manifest, func() error {
			out, err := kubectl(tt.manifest, "create", "--dry-run=server", "-f", "-")
			if !strings.Contains(out, tt.want) {
				return errors.Join(err, fmt.Errorf("%s has no %q", out, tt.want))
			}
			return nil
		})
	}
	c.leavesClaims()
}

// leavesClaims: a claim that is older than the policies can be updated, but not its annotation.
func (c cluster) leavesClaims() {
	c.Helper()
	const before = `{apiVersion: v1, kind: Namespace, metadata: {name: nothing, labels: {blkio.noderesource.dev/allow: %s}}}`
	c.kubectl(fmt.Sprintf(before, "all"), "apply", "-f", "-")
	c.eventually("a claim with limits", func() error {
		out, err := kubectl(ofClaim("nothing", "limits.blkio.noderesource.dev", "wbps=50Mi"), "create", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.kubectl(fmt.Sprintf(before, "none"), "apply", "-f", "-")
	annotate := func(annotation, want string, args ...string) {
		c.eventually(annotation, func() error {
			args := append([]string{"patch", "pvc", "-n", "nothing", "data", "--type=merge", "-p", `{"metadata": {"annotations": {` + annotation + `}}}`}, args...)
			if out, err := kubectl("", args...); (err != nil) != (want != "") || !strings.Contains(out, want) {
				return errors.Join(err, fmt.Errorf("%s has no %q", out, want))
			}
			return nil
		})
	}
	annotate(`"limits.blkio.noderesource.dev": "wbps=60Mi"`, "claims of namespace nothing may not have this annotation")
	annotate(`"limits.blkio.noderesource.dev": "wbps=60Mi"`, "claims of namespace nothing may not have this annotation", "--subresource=status")
	annotate(`"example.com/a": "b"`, "")
	annotate(`"limits.blkio.noderesource.dev": null`, "")
}

// ofClaim, ofSet and ofClass return manifests of a claim, of a StatefulSet with limits in a template of claims, and of a class.
func ofClaim(namespace, key, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: %s, name: data, annotations: {%q: %q}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
		namespace, key, value)
}

func ofSet(namespace, value string) string {
	const pods = "selector: {matchLabels: {a: b}}, serviceName: db, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}"
	return fmt.Sprintf("{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: %s, name: db}, spec: {%s, volumeClaimTemplates: [{metadata: {name: data, annotations: {limits.blkio.noderesource.dev: %q}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}",
		namespace, pods, value)
}

func ofClass(parameters string) string {
	return fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: slow}, driverName: ebs.csi.aws.com, parameters: %s}", parameters)
}
