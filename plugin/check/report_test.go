package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// TestReport verifies that an unknown policy of the node is noted for the pods that a policy concerns.
func TestReport(t *testing.T) {
	limited := *podOf(map[string]string{"limits.blkio.noderesource.dev/container.c": "rootfs rbps=1Mi"}, "c")
	wrong := *podOf(map[string]string{"limits.blkio.noderesource.dev/container.c": "rootfs rbps=x"}, "c")
	set := manifest.Set{Pods: []manifest.Pod{limited, wrong, *podOf(nil, "c")}}
	const unknown = "the node's policy: no report (set --policy)"
	for _, tt := range []struct {
		source PolicySource
		want   [][]string
	}{
		{PolicySource{Name: "policy.yaml"}, [][]string{nil, nil, nil}},
		{PolicySource{Name: BuiltIn, Unknown: "no report"}, [][]string{{unknown}, {unknown}, nil}},
	} {
		r := testChecker().Report(t.Context(), &set, tt.source)
		var got [][]string
		for i := range r.Pods {
			got = append(got, r.Pods[i].Unknown)
		}
		if d := cmp.Diff(tt.want, got); d != "" || r.Policy != tt.source.Name || !r.HasErrors() {
			t.Errorf("%+v: %q; -want +got:\n%s", tt.source, r.Policy, d)
		}
		if r.Findings == nil || r.Pods == nil {
			t.Error("a list is null in JSON")
		}
	}
}

// TestReportHasErrors verifies that the errors of manifests and of pods count, and warnings do not.
func TestReportHasErrors(t *testing.T) {
	for _, tt := range []struct {
		report Report
		want   bool
	}{
		{Report{}, false},
		{Report{Findings: []manifest.Finding{{Severity: manifest.Warning}}}, false},
		{Report{Findings: []manifest.Finding{{Severity: manifest.Warning}, {Severity: manifest.Error}}}, true},
		{Report{Pods: []Result{{Warnings: []string{"w"}}}}, false},
		{Report{Pods: []Result{{}, {Errors: []string{"e"}}}}, true},
	} {
		if got := tt.report.HasErrors(); got != tt.want {
			t.Errorf("%+v: %t", tt.report, got)
		}
	}
}

func TestPolicySource(t *testing.T) {
	for source, want := range map[PolicySource]string{
		{Name: "policy.yaml"}:                        "policy.yaml",
		{Name: BuiltIn, Unknown: "it has no report"}: "built-in: it has no report",
	} {
		if got := source.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
