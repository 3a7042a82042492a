package main

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestDeployedPolicies verifies that the policy that users start from must be the default.
func TestDeployedPolicies(t *testing.T) {
	for _, file := range []string{"policy.yaml", "kubernetes/policy.yaml"} {
		o := options{policy: filepath.Join("../../deploy", file)}
		got, err := o.loadPolicy()
		if err != nil {
			t.Fatal(err)
		}
		equal := cmp.Comparer(func(a, b *policy.Class) bool { return reflect.DeepEqual(a, b) })
		if d := cmp.Diff(policy.Default(), got, equal); d != "" {
			t.Errorf("%s differs from the default (-want +got):\n%s", file, d)
		}
	}
}

// TestValidatorNeedsNoNode verifies that the validator opens neither cgroupfs nor the node's storage.
func TestValidatorNeedsNoNode(t *testing.T) {
	log, _ := test.NewNullLogger()
	a := &app{opts: options{hostRoot: "/absent", policy: "/absent"}}
	r := runner{app: a, runOptions: runOptions{only: health.Validator}, log: log}
	got, err := r.parts(t.Context())
	if err != nil || len(got) != 1 {
		t.Errorf("%d parts, %v", len(got), err)
	}
}

// TestPolicyWarnings verifies that the log has the likely mistakes of the policy when a part starts.
func TestPolicyWarnings(t *testing.T) {
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(host, "policy.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nhostKernelHandlers: [myrunc]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, hook := test.NewNullLogger()
	r := runner{app: &app{openCgroups: cgroupfs.OpenTree, opts: options{hostRoot: host, policy: file}}, log: log}
	n, err := r.openNode()
	if err != nil {
		t.Fatal(err)
	}
	defer n.cgroups.Close()
	var warnings []any
	for _, e := range hook.AllEntries() {
		if e.Message == "The node policy may have a mistake" {
			warnings = append(warnings, e.Data["warning"])
		}
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0].(string), `hostKernelHandlers of the policy lacks ""`) {
		t.Errorf("warnings: %q", warnings)
	}
}

// TestLinkedKubelet verifies that a link to the kubelet's directory, or to that of the pods, is resolved, and any other answer is not used.
func TestLinkedKubelet(t *testing.T) {
	for _, tt := range []struct {
		pods    string
		isLocal bool
		want    string
	}{
		{"/var/lib/kubelet/pods", true, "/var/lib/kubelet"},
		{"/mnt/data/kubelet/pods", true, "/mnt/data/kubelet"},
		{"/mnt/data/pods", true, "/mnt/data"},
		{"/mnt/data/of-pods", true, "/var/lib/kubelet"}, // no path of a volume has pods/UID then
		{"/mnt/nfs/kubelet/pods", false, "/var/lib/kubelet"},
		{"", false, "/var/lib/kubelet"},
	} {
		locate := func(_ context.Context, p string) (string, bool) {
			if p != "/var/lib/kubelet/pods" {
				t.Errorf("located %s", p)
			}
			return tt.pods, tt.isLocal
		}
		if got := linkedKubelet(t.Context(), locate, "/var/lib/kubelet"); got != tt.want {
			t.Errorf("pods at %q: %s, want %s", tt.pods, got, tt.want)
		}
	}
}
