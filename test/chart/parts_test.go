package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// all are values that render each object of the chart but the namespace.
const all = `
imagePullSecrets: [{name: registry}]
validator: {enabled: true}
cluster: {enabled: true, extraArgs: [--resync=10s]}
admission: {grammar: true, tenants: true, failClosed: true, reserve: true, reserveSet: true, grammarActions: [Warn, Audit]}
metrics: {enabled: true, podMonitor: {enabled: true, labels: {release: a}}, prometheusRule: {enabled: true, labels: {release: a}}, dashboard: {enabled: true}}
openshift: {scc: true}
podAnnotations: {tolerate-missing-plugins.noderesource.dev: "true"}
`

// many are values that differ in what they render.
func many() map[string]string {
	return map[string]string{
		"defaults": "", "all": all, "all, hostile": all + "privileges: hostile-tenants\n",
		"limits only": "writeback: {enabled: false}\n", "writeback only": "limits: {enabled: false}\n",
		"no part":   "limits: {enabled: false}\nwriteback: {enabled: false}\n",
		"validator": "validator: {enabled: true}\n", "cluster": "cluster: {enabled: true}\n",
		"metrics":     "metrics: {enabled: true, host: '[$(NODE_IP)]'}\n",
		"no defaults": "tolerations: []\nnodeSelector: null\naffinity: null\npriorityClassName: ''\nresourceQuota: false\nlimits: {resources: null}\nuninstall: {removeLimits: false}\n",
		"SELinux":     "seLinuxOptions: {type: container_t}\n", "SCC": "openshift: {scc: true}\n", "names": all + "nameOverride: io\npodLabels: {a: b}\ncommonLabels: {c: d}\nupdateStrategy: {type: OnDelete}\n",
		"pools": all + pools,
		"nodes": "nodeSelector: {a: b}\ntolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}]\nupdateStrategy: {rollingUpdate: {maxUnavailable: 1}}\nnriDirectory: /opt/nri\n",
	}
}

// TestObjects verifies that each object has only known fields, a namespace if its kind has one, and the image, and
// that its parts fit together.
func TestObjects(t *testing.T) {
	for name, values := range many() {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, values))
			accounts := names(all)
			for _, o := range all {
				kind := o.kind()
				if want := map[bool]string{false: "nri-blkio"}[isOfCluster(kind)]; o.GetNamespace() != want {
					t.Errorf("%s is in namespace %q, want %q", o.name(), o.GetNamespace(), want)
				}
				if strings.Contains(o.text, "missing:") || strings.Contains(o.text, "<no value>") || strings.Contains(o.text, "{{ ") && !strings.HasPrefix(kind, "Prometheus") {
					t.Errorf("%s:\n%s", o.name(), o.text)
				}
				if pod, selector := podOf(o.decoded); pod != nil {
					checkPod(t, o.name(), pod, accounts)
					checkSelector(t, o.name(), pod, selector)
				}
			}
		})
	}
}

// checkPod verifies that the references within a pod have objects.
func checkPod(t *testing.T, name string, pod *corev1.PodTemplateSpec, rendered []string) {
	t.Helper()
	spec := &pod.Spec
	if account := "ServiceAccount " + spec.ServiceAccountName; !slices.Contains(rendered, account) {
		t.Errorf("%s: no %s", name, account)
	}
	if len(spec.Containers) != 1 || spec.Containers[0].Image != "registry.example/nri-blkio:latest" {
		t.Fatalf("%s: containers %v", name, spec.Containers)
	}
	c := &spec.Containers[0]
	used := map[string]bool{}
	for _, m := range c.VolumeMounts {
		used[m.Name] = true
		if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s: no volume %s", name, m.Name)
		}
	}
	for _, v := range spec.Volumes {
		if !used[v.Name] {
			t.Errorf("%s: volume %s is not mounted", name, v.Name)
		}
		if v.ConfigMap != nil && !slices.Contains(rendered, "ConfigMap "+v.ConfigMap.Name) {
			t.Errorf("%s: no ConfigMap %s", name, v.ConfigMap.Name)
		}
	}
	s := c.SecurityContext
	if s == nil || s.Privileged == nil || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s: securityContext %v", name, s)
	}
	if profile := spec.SecurityContext.SeccompProfile; profile == nil || profile.Type == corev1.SeccompProfileTypeUnconfined {
		t.Errorf("%s: seccomp profile %v", name, profile)
	}
	for _, arg := range c.Args {
		if variable := "$(NODE_IP)"; strings.Contains(arg, variable) && !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NODE_IP" }) {
			t.Errorf("%s: %s without the variable", name, arg)
		}
	}
}

// checkSelector verifies that a DaemonSet selects its own pods.
func checkSelector(t *testing.T, name string, pod *corev1.PodTemplateSpec, selector *metav1.LabelSelector) {
	t.Helper()
	if selector == nil {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s selects %v, its pods have %v: %v", name, selector, pod.Labels, err)
	}
}

// TestDriverLimits verifies that the flag and the rights to read VolumeAttachments come together.
func TestDriverLimits(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		text := strings.Join(slices.Collect(maps.Values(render(t, "cluster: {enabled: true, driverLimits: "+value+"}"))), "")
		for _, part := range []string{"- --driver-limits\n", "resources: [persistentvolumes]\n", "resources: [volumeattachments]\n"} {
			if strings.Contains(text, part) != want {
				t.Errorf("driverLimits %s: %q is there: %t", value, part, !want)
			}
		}
	}
}

// TestParts verifies that a part that is off leaves no object, and that one that is on has its own.
func TestParts(t *testing.T) {
	own := map[string][]string{
		"limits":    {"DaemonSet nri-blkio", "Pod nri-blkio-test"},
		"writeback": {"DaemonSet nri-blkio-writeback"},
		"validator": {"DaemonSet nri-blkio-validator"},
		"cluster": {
			"ClusterRole nri-blkio-cluster", "ClusterRoleBinding nri-blkio-cluster", "DaemonSet nri-blkio-cluster", "ServiceAccount nri-blkio-cluster",
			"Role nri-blkio-cluster", "RoleBinding nri-blkio-cluster",
			"ValidatingAdmissionPolicy nri-blkio-cluster", "ValidatingAdmissionPolicyBinding nri-blkio-cluster",
			"ValidatingAdmissionPolicy nri-blkio-report", "ValidatingAdmissionPolicyBinding nri-blkio-report",
		},
	}
	parts := []string{"limits", "writeback", "validator", "cluster"}
	for on := range 1 << len(parts) {
		// The removal does not depend on the parts: the limits part may have been on before.
		values, want := "externalParts: [limits]\n", []string{
			"DaemonSet nri-blkio-remove", "Job nri-blkio-remove", "ResourceQuota nri-blkio", "ResourceQuota nri-blkio-remove",
			"Role nri-blkio-remove", "RoleBinding nri-blkio-remove", "ServiceAccount nri-blkio", "ServiceAccount nri-blkio-remove",
		}
		for i, part := range parts {
			enabled := on>>i&1 == 1
			values += fmt.Sprintf("%s: {enabled: %t}\n", part, enabled)
			if enabled {
				want = append(want, own[part]...)
			}
		}
		if on&3 != 0 { // both read the policy
			want = append(want, "ConfigMap nri-blkio-policy")
		}
		slices.Sort(want)
		if d := cmp.Diff(want, names(objects(t, render(t, values)))); d != "" {
			t.Errorf("%s: -want +got\n%s", values, d)
		}
	}
}

// TestOptions verifies that what is not a part is rendered only if it is asked for.
func TestOptions(t *testing.T) {
	before := names(objects(t, render(t, "")))
	for values, want := range map[string][]string{
		"admission: {grammar: true}": {
			"ValidatingAdmissionPolicy nri-blkio-grammar", "ValidatingAdmissionPolicyBinding nri-blkio-grammar",
			"ValidatingAdmissionPolicy nri-blkio-grammar-warn", "ValidatingAdmissionPolicyBinding nri-blkio-grammar-warn",
			"ValidatingAdmissionPolicy nri-blkio-grammar-claims", "ValidatingAdmissionPolicyBinding nri-blkio-grammar-claims",
			"ValidatingAdmissionPolicy nri-blkio-grammar-claims-warn", "ValidatingAdmissionPolicyBinding nri-blkio-grammar-claims-warn",
			"ValidatingAdmissionPolicy nri-blkio-grammar-classes", "ValidatingAdmissionPolicyBinding nri-blkio-grammar-classes",
		},
		"admission: {tenants: true}":    {"ValidatingAdmissionPolicy nri-blkio-tenants", "ValidatingAdmissionPolicyBinding nri-blkio-tenants"},
		"admission: {reserve: true}":    {"ValidatingAdmissionPolicy blkio-annotations-reserved", "ValidatingAdmissionPolicyBinding blkio-annotations-reserved"},
		"admission: {reserveSet: true}": {"MutatingAdmissionPolicy blkio-annotations-set", "MutatingAdmissionPolicyBinding blkio-annotations-set"},
		"admission: {failClosed: true}\nexternalParts: [validator]": {
			"MutatingAdmissionPolicy nri-blkio-fail-closed", "MutatingAdmissionPolicyBinding nri-blkio-fail-closed",
			"ValidatingAdmissionPolicy nri-blkio-fail-closed", "ValidatingAdmissionPolicyBinding nri-blkio-fail-closed",
		},
		"metrics: {enabled: true}":                                  nil,
		"metrics: {enabled: true, podMonitor: {enabled: true}}":     {"PodMonitor nri-blkio", "PodMonitor nri-blkio-writeback"},
		"metrics: {enabled: true, prometheusRule: {enabled: true}}": {"PrometheusRule nri-blkio"},
		"openshift: {scc: true}":                                    {"SecurityContextConstraints nri-blkio", "SecurityContextConstraints nri-blkio-remove"},
		// The objects are for kubectl, which knows no hooks.
		"namespace: {create: true}": {"Namespace nri-blkio"},
	} {
		want := append(slices.Clone(before), want...)
		if strings.HasPrefix(values, "namespace") {
			want = slices.DeleteFunc(want, func(name string) bool {
				return strings.HasSuffix(name, "nri-blkio-remove") || strings.HasSuffix(name, "nri-blkio-test")
			})
		}
		slices.Sort(want)
		if d := cmp.Diff(want, names(objects(t, render(t, values)))); d != "" {
			t.Errorf("%s: -want +got\n%s", values, d)
		}
	}
}

// TestSecondRelease verifies that two releases in two namespaces have no object in common, if only one has the
// admission policies.
func TestSecondRelease(t *testing.T) {
	const values = image + "validator: {enabled: true}\ncluster: {enabled: true}\nopenshift: {scc: true}\n"
	seen := map[string]bool{}
	for _, namespace := range []string{"nri-blkio", "second"} {
		files, err := open(t).Template(t.Context(), Render{Values: values, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects(t, files) {
			id := o.GetNamespace() + " " + o.name()
			if seen[id] {
				t.Errorf("both have %s", id)
			}
			seen[id] = true
			if other := "nri-blkio:nri-blkio"; namespace == "second" && strings.Contains(o.text, other) {
				t.Errorf("%s names the other namespace", o.name())
			}
		}
	}
}

// TestArguments verifies that values reach the arguments of their own part, and no other one's.
func TestArguments(t *testing.T) {
	values := "metrics: {enabled: true}\nvalidator: {enabled: true}\ncluster: {enabled: true}\n"
	for i, part := range []string{"limits", "writeback", "validator", "cluster"} {
		files := render(t, values+fmt.Sprintf("%s: {enabled: true, extraArgs: [--log-level=debug], metricsPort: %d}\n", part, 9000+i),
			"--set", part+".enabled=true")
		for _, o := range objects(t, files) {
			set, ok := o.decoded.(*appsv1.DaemonSet)
			if !ok || set.Name == "nri-blkio-remove" {
				continue
			}
			args := strings.Join(set.Spec.Template.Spec.Containers[0].Args, " ")
			isPart := strings.Contains(args, "--only="+part+" ")
			if strings.Contains(args, "--log-level=debug") != isPart || strings.Contains(args, fmt.Sprintf(":%d", 9000+i)) != isPart {
				t.Errorf("%s for %s: %s", set.Name, part, args)
			}
			if !strings.Contains(args, "--metrics-address=") || set.Spec.Template.Spec.Containers[0].Ports[0].Name != "metrics" {
				t.Errorf("%s serves no metrics: %s", set.Name, args)
			}
		}
	}
}
