package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// decoded returns objects as maps, by kind and name.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		var all map[string]any
		for _, into := range []any{&o, &all} {
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatalf("%v\n%s", err, document)
			}
		}
		out[o.Kind+" "+o.Metadata.Name] = all
	}
	return out
}

// TestKustomizations verifies that the kustomizations are the chart with their profile of privileges.
func TestKustomizations(t *testing.T) {
	programs, err := node.Kubernetes(t.Context(), node.Config{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	for dir, privileges := range map[string]string{"kubernetes": "default", "kubernetes-hostile-tenants": "hostile-tenants"} {
		built, err := exec.CommandContext(t.Context(), filepath.Join(programs, "kubectl"), "kustomize", filepath.Join(deploy, dir)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, built)
		}
		// The cluster part is optional there, and the limits part has its flags for it in any case.
		files := render(t, "namespace: {create: true}\ncluster: {enabled: true}\nprivileges: "+privileges+"\n")
		var rendered []string
		for name, text := range files {
			if !strings.HasPrefix(name, "templates/cluster") {
				rendered = append(rendered, text)
			}
		}
		if d := cmp.Diff(decoded(t, strings.Join(rendered, "\n---\n")), decoded(t, string(built))); d != "" {
			t.Errorf("%s: -chart +kustomization\n%s", dir, d)
		}
	}
}

// pods returns the pods of the rendered objects by their names.
func pods(t *testing.T, values string) map[string]*corev1.PodSpec {
	t.Helper()
	out := map[string]*corev1.PodSpec{}
	for _, o := range objects(t, render(t, values)) {
		if pod, _ := podOf(o.decoded); pod != nil {
			out[o.name()] = &pod.Spec
		}
	}
	return out
}

// TestPrivileges verifies what the profile for hostile tenants changes, and that its seccomp profiles exist.
func TestPrivileges(t *testing.T) {
	usual, fewer := pods(t, all), pods(t, all+"privileges: hostile-tenants\n")
	profile := func(p *corev1.PodSpec) string {
		if s := p.SecurityContext.SeccompProfile; s.LocalhostProfile != nil {
			return *s.LocalhostProfile
		}
		return string(p.SecurityContext.SeccompProfile.Type)
	}
	added := func(p *corev1.PodSpec) []corev1.Capability { return p.Containers[0].SecurityContext.Capabilities.Add }
	for name, want := range map[string]struct {
		profile      string
		capabilities []corev1.Capability
	}{
		"DaemonSet nri-blkio":           {"nri-blkio/limits.json", []corev1.Capability{"DAC_READ_SEARCH"}},
		"DaemonSet nri-blkio-remove":    {"nri-blkio/limits.json", []corev1.Capability{"DAC_READ_SEARCH"}},
		"DaemonSet nri-blkio-writeback": {"nri-blkio/writeback.json", []corev1.Capability{"BPF", "PERFMON", "DAC_READ_SEARCH"}},
		"DaemonSet nri-blkio-validator": {"RuntimeDefault", nil},
		"DaemonSet nri-blkio-cluster":   {"RuntimeDefault", nil},
	} {
		if got := profile(usual[name]); got != "RuntimeDefault" {
			t.Errorf("%s has the profile %s by default", name, got)
		}
		if got := profile(fewer[name]); got != want.profile || !slices.Equal(added(fewer[name]), want.capabilities) || fewer[name].HostPID {
			t.Errorf("%s has the profile %s, %v, hostPID %t", name, got, added(fewer[name]), fewer[name].HostPID)
		}
		if len(want.capabilities) > 0 && len(added(usual[name])) <= len(want.capabilities) {
			t.Errorf("%s has only %v by default", name, added(usual[name]))
		}
		if file, ok := strings.CutPrefix(want.profile, "nri-blkio/"); ok {
			if _, err := os.Stat(filepath.Join(deploy, "seccomp", file)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestConstraints verifies that OpenShift's constraints admit each pod of their accounts, and no more than the pods need.
func TestConstraints(t *testing.T) {
	for _, values := range []string{all, all + "privileges: hostile-tenants\n", "openshift: {scc: true}\nwriteback: {enabled: false}\n"} {
		rendered := pods(t, values)
		for _, o := range objects(t, render(t, values)) {
			c, ok := o.decoded.(*constraints)
			if !ok {
				continue
			}
			var capabilities []corev1.Capability
			hostPID, hostPorts := false, false
			for name, p := range rendered {
				if !slices.Contains(c.Users, "system:serviceaccount:nri-blkio:"+p.ServiceAccountName) {
					continue
				}
				context := p.Containers[0].SecurityContext
				capabilities = append(capabilities, context.Capabilities.Add...)
				hostPID, hostPorts = hostPID || p.HostPID, hostPorts || p.HostNetwork && len(p.Containers[0].Ports) > 0
				if isRoot := context.RunAsUser != nil && *context.RunAsUser == 0; isRoot && (context.SELinuxOptions == nil || context.SELinuxOptions.Type != "spc_t") {
					t.Errorf("%s has the SELinux options %v", name, context.SELinuxOptions)
				}
			}
			slices.Sort(capabilities)
			slices.Sort(c.AllowedCapabilities)
			if d := cmp.Diff(slices.Compact(capabilities), c.AllowedCapabilities); d != "" || hostPID != c.AllowHostPID || hostPorts != c.AllowHostPorts || c.AllowPrivilegedContainer {
				t.Errorf("%s: hostPID %t, want %t; hostPorts %t, want %t; -pods +constraints\n%s", c.Name, c.AllowHostPID, hostPID, c.AllowHostPorts, hostPorts, d)
			}
		}
	}
}
