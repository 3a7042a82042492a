package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const deploy = "../../deploy"

// open returns the chart of this repository.
func open(t *testing.T) *Chart {
	t.Helper()
	c, err := Open(t.Context(), deploy)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart with the image of deploy/ and more values.
func render(t *testing.T, values string, args ...string) map[string]string {
	t.Helper()
	files, err := open(t).Template(t.Context(), Render{Values: image + values, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestManifests verifies that the files of deploy/ are those of the chart.
func TestManifests(t *testing.T) {
	files, err := open(t).Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		file := filepath.Join(deploy, name)
		if os.Getenv("UPDATE_MANIFESTS") != "" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(got), want); d != "" {
			t.Errorf("deploy/%s is not that of the chart; run make generate: -file +chart\n%s", name, d)
		}
	}
}

// TestNoOtherManifests verifies that each manifest of deploy/ is made from the chart, except the kustomizations.
func TestNoOtherManifests(t *testing.T) {
	made, err := open(t).Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"kubernetes", "kubernetes-hostile-tenants", "admission"} {
		entries, err := os.ReadDir(filepath.Join(deploy, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := dir + "/" + e.Name(); made[name] == "" && e.Name() != "kustomization.yaml" {
				t.Errorf("deploy/%s is not made from the chart", name)
			}
		}
	}
}

// TestLint verifies that helm finds nothing in the chart, with its defaults and with everything.
func TestLint(t *testing.T) {
	c := open(t)
	for name, values := range map[string]string{"defaults": "", "everything": everything, "pools": image + pools + twoTerms} {
		out, err := c.Helm(t.Context(), values, "lint", "--strict", filepath.Join(deploy, Dir), "--values", "-")
		if err != nil || strings.Contains(out, "[WARNING]") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestPackage verifies that the packaged chart renders as the directory does: it has all of its files.
func TestPackage(t *testing.T) {
	c, dir := open(t), t.TempDir()
	if _, err := c.Helm(t.Context(), "", "package", filepath.Join(deploy, Dir), "--destination", dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	var rendered []string
	for _, from := range []string{files[0], filepath.Join(deploy, Dir)} {
		out, err := c.Helm(t.Context(), everything, "template", "nri-blkio", from, "--values", "-")
		if err != nil {
			t.Fatal(err)
		}
		rendered = append(rendered, out)
	}
	if d := cmp.Diff(rendered[1], rendered[0]); d != "" {
		t.Errorf("-directory +package:\n%s", d)
	}
}

// TestErrors verifies that wrong values are errors that name them.
func TestErrors(t *testing.T) {
	c := open(t)
	for values, want := range map[string]string{
		"":                           "image.repository: required",
		"image: {repository: a}":     "image.tag: required",
		"image: {repository: 'A b'}": "/image/repository",
		"image: {digest: abc}":       "/image/digest",
		"image: {tag: 1}":            "/image/tag",
		"imagee: {}":                 "'imagee' not allowed",
		"limits: {enabeld: true}":    "'enabeld' not allowed",
		"limits: {enabled: 'yes'}":   "/limits/enabled",
		"limits: {extraArgs: [x]}":   "/limits/extraArgs/0",
		// The pods that remove limits have these arguments too.
		"limits: {extraArgs: [--mode=enforce]}":                 "/limits/extraArgs/0",
		"limits: {extraArgs: [--policy, --x]}":                  "/limits/extraArgs/0",
		"limits: {extraArgs: [--runtime-endpoint none]}":        "/limits/extraArgs/0",
		"writeback: {metricsPort: 0}":                           "/writeback/metricsPort",
		"writeback: {resources: {cpu: 1}}":                      "'cpu' not allowed",
		"privileges: none":                                      "/privileges",
		"updateStrategy: {rollingUpdate: {maxUnavailable: 0%}}": "/updateStrategy/rollingUpdate/maxUnavailable",
		"updateStrategy: {rollingUpdate: {maxSurge: 1}}":        "'maxSurge' not allowed",
		"affinity: {node: {}}":                                  "'node' not allowed",
		"podLabels: {app.kubernetes.io/name: a}":                "/podLabels",
		"commonLabels: {node-pool: a}":                          "/commonLabels",
		"nameOverride: A":                                       "/nameOverride",
		"externalParts: [cluster]":                              "/externalParts/0",
		"nodePools: {policyFiles: {A: b}}":                      "/nodePools/policyFiles",
		"nriDirectory: run/nri":                                 "/nriDirectory",
		"tolerations: [{key: a, effect: No}]":                   "/tolerations/0/effect",
		"policy: {mode: enforce}":                               "'policy' not allowed",
		"policyFile: {mode: enforce}":                           "/policyFile",
		"policyFile: ''":                                        "/policyFile",
		"admission: {grammarActions: []}":                       "/admission/grammarActions",
		"admission: {grammarActions: [Reject]}":                 "/admission/grammarActions/0",
		"uninstall: {timeoutSeconds: 1}":                        "/uninstall/timeoutSeconds",
		image + "metrics: {podMonitor: {enabled: true}}":        "metrics.podMonitor.enabled: needs metrics.enabled",
		image + "metrics: {prometheusRule: {enabled: true}}":    "metrics.prometheusRule.enabled: needs metrics.enabled",
		image + "metrics: {dashboard: {enabled: true}}":         "metrics.dashboard.enabled: needs metrics.enabled",
		image + "nodePools: {policyFiles: {a: 'apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy'}}": "nodePools.label: required",
		image + "admission: {failClosed: true}":                                                       "admission.failClosed: needs validator.enabled, or externalParts: [validator]",
		image + "limits: {enabled: false}\nvalidator: {enabled: true}":                                "validator.enabled: needs limits.enabled, or externalParts: [limits]",
		image + "limits: {enabled: false}\nadmission: {failClosed: true}\nexternalParts: [validator]": "admission.failClosed: needs limits.enabled, or externalParts: [limits]",
	} {
		if _, err := c.Template(t.Context(), Render{Values: values}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// TestVersions verifies that what a version of Kubernetes does not have is an error, or is left out.
func TestVersions(t *testing.T) {
	c := open(t)
	for value, least := range map[string]int{
		"cluster: {enabled: true}": 30, "admission: {grammar: true}": 30, "admission: {tenants: true}": 30, "admission: {reserve: true}": 30,
		"admission: {failClosed: true}\nexternalParts: [validator]": 36, "admission: {reserveSet: true}": 36,
	} {
		for minor := least - 1; minor <= least; minor++ {
			_, err := c.Template(t.Context(), Render{Values: image + value, Args: []string{fmt.Sprintf("--kube-version=1.%d.4", minor)}})
			if wants := minor < least; wants != (err != nil) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("needs Kubernetes 1.%d or later", least)) {
				t.Errorf("%s on 1.%d: %v", value, minor, err)
			}
		}
	}
	const field = "recursiveReadOnly: IfPossible"
	for version, want := range map[string]bool{"1.29.9": false, "1.30.0": true, "1.31.2-gke.1": true} {
		if got := strings.Contains(render(t, "", "--kube-version="+version)["templates/daemonset.yaml"], field); got != want {
			t.Errorf("%s: %s: %t", version, field, got)
		}
	}
}
