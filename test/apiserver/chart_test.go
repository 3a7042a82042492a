package apiserver

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/chart"
)

// chartValues render all but the objects of kinds that this API server does not have.
const chartValues = `
image: {repository: registry.example/nri-blkio, tag: latest}
validator: {enabled: true}
cluster: {enabled: true}
admission: {grammar: true, tenants: true, failClosed: true, reserve: true, reserveSet: true}
metrics: {enabled: true}
`

// TestChart verifies that the API server admits the objects of the chart, hooks included, and that the Job that waits for
// the removal of the limits may read and delete one DaemonSet, and nothing else.
func TestChart(t *testing.T) {
	c := cluster{t}
	helm, err := chart.Open(t.Context(), deploy)
	if err != nil {
		t.Fatal(err)
	}
	files, err := helm.Template(t.Context(), chart.Render{Values: chartValues})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(readFile(t, deploy, "kubernetes/namespace.yaml"), "apply", "-f", "-")
	if len(files) < 14 {
		t.Errorf("only %d templates render something", len(files))
	}
	for name, text := range files {
		if out, err := kubectl(text, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			t.Errorf("%s: %v: %s\n%s", name, err, out, text)
		}
	}
	for document := range strings.SplitSeq(files["templates/uninstall.yaml"], "\n---\n") {
		if strings.Contains(document, "\nkind: Role") {
			c.kubectl(document, "apply", "-f", "-")
		}
	}
	const account = "--as=system:serviceaccount:nri-blkio:nri-blkio-remove"
	for request, want := range map[string]string{
		"get daemonsets.apps/nri-blkio-remove": "yes", "get daemonsets.apps/nri-blkio": "no", "list daemonsets.apps": "no", "delete daemonsets.apps/nri-blkio-remove": "yes", "delete daemonsets.apps/nri-blkio": "no",
		"get configmaps": "no", "get pods": "no", "create pods": "no",
	} {
		args := append([]string{"auth", "can-i", "-n", "nri-blkio", account}, strings.Fields(request)...)
		out, _ := kubectl("", args...) // it fails with "no"
		if got := strings.TrimSpace(out); got != want && !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// TestChartNamespace verifies that the chart is not installed into a namespace whose Pod Security level rejects its pods: the
// API server would accept the DaemonSets, and only their Events would say why there are no pods.
func TestChartNamespace(t *testing.T) {
	c := cluster{t}
	helm, err := chart.Open(t.Context(), deploy)
	if err != nil {
		t.Fatal(err)
	}
	for namespace, label := range map[string]string{"chart-none": "", "chart-privileged": "privileged", "chart-baseline": "baseline", "chart-restricted": "restricted"} {
		labels := "{}"
		if label != "" {
			labels = "{pod-security.kubernetes.io/enforce: " + label + "}"
		}
		c.kubectl("{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: "+labels+"}}", "apply", "-f", "-")
		out, err := helm.Helm(t.Context(), "image: {repository: a, tag: b}", "install", "nri-blkio", filepath.Join(deploy, chart.Dir),
			"--namespace", namespace, "--values", "-", "--dry-run=server", "--kubeconfig", server.kubeconfig)
		if rejects := label == "baseline" || label == "restricted"; !rejects && err != nil {
			t.Errorf("label %q: %v", label, err)
		} else if want := "namespace " + namespace + " has the label pod-security.kubernetes.io/enforce=" + label; rejects && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("label %q: %v, want %q\n%s", label, err, want, out)
		}
	}
}

// TestChartAdmission verifies that the chart refuses admission policies that a release in another namespace has, and not its
// own ones.
func TestChartAdmission(t *testing.T) {
	c := cluster{t}
	helm, err := chart.Open(t.Context(), deploy)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"grammar": "nri-blkio-grammar", "tenants": "nri-blkio-tenants", "failClosed": "nri-blkio-fail-closed", "reserve": "blkio-annotations-reserved",
	}
	for value, name := range values {
		c.kubectl(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: `+name+`, annotations: {meta.helm.sh/release-name: nri-blkio, meta.helm.sh/release-namespace: chart-first},
  labels: {app.kubernetes.io/managed-by: Helm}}, spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [nodes]}]}, validations: [{expression: "true"}]}}`, "apply", "-f", "-")
		for namespace, refuses := range map[string]bool{"chart-first": false, "chart-second": true} {
			c.kubectl("{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}", "apply", "-f", "-")
			_, err := helm.Helm(t.Context(), "image: {repository: a, tag: b}\nvalidator: {enabled: true}\nadmission: {"+value+": true}", "install", "nri-blkio", filepath.Join(deploy, chart.Dir),
				"--namespace", namespace, "--values", "-", "--dry-run=server", "--kubeconfig", server.kubeconfig)
			want := "admission." + value + ": the release in namespace chart-first has this policy already"
			if got := err != nil && strings.Contains(err.Error(), want); got != refuses || !refuses && err != nil {
				t.Errorf("%s in %s: %v", value, namespace, err)
			}
		}
		c.kubectl("", "delete", "validatingadmissionpolicy", name)
	}
}
