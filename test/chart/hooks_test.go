package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// hooks returns the objects of a kind of hook, by their names.
func hooks(t *testing.T, values, kind string) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, o := range objects(t, render(t, values)) {
		if o.GetAnnotations()["helm.sh/hook"] == kind {
			out[o.name()] = o
		}
	}
	return out
}

// TestRemove verifies that an uninstalled release runs the limits part once more, in mode observe and with what that needs
// of the node, and waits for it. Each object that this needs is created before, and is deleted afterwards.
func TestRemove(t *testing.T) {
	removing := hooks(t, all, "post-delete")
	if len(removing) != 7 || len(hooks(t, all+"uninstall: {removeLimits: false}\n", "post-delete")) > 0 {
		t.Errorf("%d objects", len(removing))
	}
	const once = "before-hook-creation"
	own := map[string][2]string{ // the Job deletes the DaemonSet
		"DaemonSet nri-blkio-remove": {"-10", once}, "Job nri-blkio-remove": {"0", once + ",hook-succeeded"},
	}
	for name, o := range removing {
		want, ok := own[name]
		if !ok {
			want = [2]string{"-20", once + ",hook-succeeded"}
		}
		a := o.GetAnnotations()
		if got := [2]string{a["helm.sh/hook-weight"], a["helm.sh/hook-delete-policy"]}; got != want {
			t.Errorf("%s: %v", name, a)
		}
	}
	set := removing["DaemonSet nri-blkio-remove"].decoded.(*appsv1.DaemonSet)
	args := set.Spec.Template.Spec.Containers[0].Args
	if want := []string{"run", "--only=limits", "--mode=observe", "--log-format=json"}; !slices.Equal(args, want) {
		t.Errorf("arguments %q", args)
	}
	// Its pod is that of the limits part, but for the policy, the ports and the probe.
	of := func(p *corev1.PodSpec) *corev1.PodSpec {
		p = p.DeepCopy()
		c := &p.Containers[0]
		p.ServiceAccountName, c.Args, c.ReadinessProbe, c.Ports = "", nil, nil, nil
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NODE_IP" })
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "policy" })
		p.Volumes = slices.DeleteFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == "policy" })
		return p
	}
	rendered := pods(t, all)
	if d := cmp.Diff(of(rendered["DaemonSet nri-blkio"]), of(&set.Spec.Template.Spec)); d != "" {
		t.Errorf("-limits +remove\n%s", d)
	}
	job := removing["Job nri-blkio-remove"].decoded.(*batchv1.Job)
	role := removing["Role nri-blkio-remove"].decoded.(*rbacv1.Role)
	if want := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{set.Name}, Verbs: []string{"get", "delete"}}}; cmp.Diff(want, role.Rules) != "" {
		t.Errorf("the role has %v", role.Rules)
	}
	if wait := job.Spec.Template.Spec.Containers[0]; !slices.Equal(wait.Args, []string{"await-daemonset", "--delete", "nri-blkio/" + set.Name}) {
		t.Errorf("the Job runs %q", wait.Args)
	}
	// Where the runtime requires the plugins, the validator has ended by then.
	if d := cmp.Diff(set.Spec.Template.Annotations, job.Spec.Template.Annotations); d != "" || len(job.Spec.Template.Annotations) == 0 {
		t.Errorf("-annotations of the DaemonSet +of the Job\n%s", d)
	}
	if n := len(hooks(t, "limits: {enabled: false}\n", "post-delete")); n != 6 {
		t.Errorf("without the limits part, %d objects remove what it has written before", n)
	}
	if n := len(hooks(t, all+"namespace: {create: true}\n", "post-delete")); n != 0 {
		t.Errorf("for kubectl apply, %d objects remove limits", n)
	}
	// `helm uninstall` waits for 5 minutes by default.
	if limit := time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second; limit >= 5*time.Minute {
		t.Errorf("the Job may take %v", limit)
	}
}

// TestTest verifies that the pod of `helm test` has a limit, and looks at its own.
func TestTest(t *testing.T) {
	pod := hooks(t, "", "test")["Pod nri-blkio-test"].decoded.(*corev1.Pod)
	if args := pod.Spec.Containers[0].Args; !slices.Equal(args, []string{"status", "--strict", "--pod=nri-blkio/" + pod.Name}) {
		t.Errorf("it runs %q", args)
	}
	if set := pods(t, "")["DaemonSet nri-blkio"]; cmp.Diff(set.Tolerations, pod.Spec.Tolerations) != "" || len(pod.Spec.Tolerations) == 0 {
		t.Errorf("it tolerates %v", pod.Spec.Tolerations)
	}
	if limit := pod.Annotations["limits.blkio.noderesource.dev/container."+pod.Spec.Containers[0].Name]; limit == "" || pod.Spec.ActiveDeadlineSeconds == nil {
		t.Errorf("it has the annotations %v", pod.Annotations)
	}
	observing := hooks(t, observe, "test")["Pod nri-blkio-test"].decoded.(*corev1.Pod)
	if args := observing.Spec.Containers[0].Args; !slices.Equal(args, []string{"status", "--ready=limits"}) {
		t.Errorf("in mode observe it runs %q", args)
	}
}

// TestAlerts verifies that the PrometheusRule has the alerts of deploy/prometheus, and that the targets of the PodMonitors
// have the labels by which these select them.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for _, o := range objects(t, render(t, all)) {
		switch o := o.decoded.(type) {
		case *monitoringv1.PrometheusRule:
			if d := cmp.Diff(want, o.Spec); d != "" || len(want.Groups) == 0 {
				t.Errorf("-file +rule\n%s", d)
			}
		case *monitoringv1.PodMonitor:
			endpoint := o.Spec.PodMetricsEndpoints[0]
			if endpoint.Port == nil || !endpoint.HonorLabels || *endpoint.Port != "metrics" || o.Labels["release"] != "a" || o.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != o.Name {
				t.Errorf("%s: %+v", o.Name, o.Spec)
			}
			jobs[*endpoint.RelabelConfigs[0].Replacement] = endpoint.RelabelConfigs[0].TargetLabel == "job"
		}
	}
	for _, m := range regexp.MustCompile(`job="([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		if !jobs[m[1]] {
			t.Errorf("no target has the label job=%s", m[1])
		}
	}
	if len(jobs) != 4 {
		t.Errorf("jobs %v", jobs)
	}
}

// TestDashboard verifies that the ConfigMap has the dashboard, and the label by which Grafana's sidecar selects it.
func TestDashboard(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(deploy, "grafana/nri-blkio.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, o := range objects(t, render(t, all)) {
		if m, isMap := o.decoded.(*corev1.ConfigMap); isMap && m.Name == "nri-blkio-dashboard" {
			found = m.Labels["grafana_dashboard"] == "1"
			if d := cmp.Diff(map[string]string{"nri-blkio.json": string(want)}, m.Data); d != "" {
				t.Errorf("-file +ConfigMap\n%s", d)
			}
		}
	}
	if !found {
		t.Error("no ConfigMap with the label")
	}
}

// TestAdmissionValues verifies the namespace and the actions in the generated policies.
func TestAdmissionValues(t *testing.T) {
	files, err := open(t).Template(t.Context(), Render{Values: image + all, Namespace: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if text := files["templates/admission-fail-closed.yaml"]; strings.Count(text, "values: [other]") != 2 || strings.Contains(text, "[nri-blkio]") {
		t.Errorf("the policy does not leave out its own namespace:\n%s", text)
	}
	if text := files["templates/admission-grammar.yaml"]; strings.Count(text, "validationActions: [Warn, Audit]") != 3 || strings.Contains(text, "[Deny]") {
		t.Error("the policy does not have the actions Warn and Audit")
	}
}

// TestNotes verifies that the notes name the next steps.
func TestNotes(t *testing.T) {
	for values, want := range map[string][]string{
		"":      {"helm test -n nri-blkio first", "get pods", "also removes the limits"},
		observe: {"Nothing is limited yet", "/nri-blkio status"},
		"validator: {enabled: true}\nadmission: {failClosed: true}": {"fail-closed=true", "no default_validator", "exec nri-blkio-POD -- /nri-blkio status"},
		"privileges: hostile-tenants":                               {"/var/lib/kubelet/seccomp/nri-blkio/"},
		"validator: {enabled: true}":                                {"The validator rejects"},
		"cluster: {enabled: true}":                                  {"app.kubernetes.io/name=nri-blkio-cluster"},
		"admission: {reserve: true}":                                {"only in namespaces with their label", "blkio-annotations=reserved"},
		"admission: {tenants: true}":                                {"blkio.noderesource.dev/allow=limits"},
		"metrics: {enabled: true}":                                  {"ports 9467 to 9470"},
		"uninstall: {removeLimits: false}":                          {"leaves the limits in force"},
	} {
		out, err := open(t).Helm(t.Context(), image+values, "install", "first", filepath.Join(deploy, Dir), "-n", "nri-blkio", "--dry-run=client", "--hide-secret", "--values", "-")
		if err != nil {
			t.Fatal(err)
		}
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		for _, text := range want {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: no %q in\n%s", values, text, notes)
			}
		}
	}
}
