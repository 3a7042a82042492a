package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const bareLimits = "limits.blkio.noderesource.dev"

// TestOfClaim verifies that the annotation of a claim on a pod is a warning, which rejects nothing under any policy. It is reported as
// not in force unless a claim has limits.
func TestOfClaim(t *testing.T) {
	const warning = bareLimits + `: "wbps=2Mi": limits without a target are those of a claim, and have no effect on a pod (write "* wbps=50Mi" to limit each container)`
	claims := NewVolumes([]Volume{claimOf("a", "db:/data").limited("wbps=2Mi")})
	for name, tt := range map[string]struct {
		policy     string
		claims     *Volumes
		want       []string
		unenforced int
	}{
		"no claims":                    {"", NewVolumes(nil), nil, 1},
		"unknown claims":               {"", nil, nil, 1},
		"the claim":                    {"", claims, []string{"sdb wbps=2Mi from claim a"}, 0},
		"annotations that are refused": {"rules: [{name: all, annotations: reject}]\n", NewVolumes(nil), nil, 1},
		"annotations that are ignored": {"rules: [{name: all, annotations: ignore}]\n", NewVolumes(nil), nil, 1},
		"another runtime":              {"hostKernelHandlers: [runc]\n", NewVolumes(nil), nil, 1},
	} {
		d, err := decideClaims(t, tt.policy, map[string]string{bareLimits: "wbps=2Mi"}, tt.claims)
		if err != nil || d.Ignored || len(d.Unenforced) != tt.unenforced || !slices.Contains(d.WarningKinds, IgnoredAnnotations) {
			t.Errorf("%s: %v, %+v", name, err, d)
		}
		if diff := cmp.Diff(tt.want, sources(d)); diff != "" || !slices.Equal(d.Warnings, []string{warning}) {
			t.Errorf("%s: %q, -want +got:\n%s", name, d.Warnings, diff)
		}
		if tt.unenforced > 0 && d.Unenforced[0].Reason != annotation.OfClaim {
			t.Errorf("%s: %+v", name, d.Unenforced[0])
		}
	}
	if pod := Default().ForPod(&PodFacts{}, annotation.Parse(map[string]string{bareLimits: "wbps=2Mi"})); pod.IsEmpty() || len(pod.Check()) > 0 || pod.StarOf("db") {
		t.Error("the pod is not reported, or has an error")
	}
}

// TestOfPod verifies that the annotation of a pod on a claim is a warning, and leaves the class of the claim its effect.
func TestOfPod(t *testing.T) {
	const warning = `"claim a": "* wbps=2Mi": limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`
	claims := NewVolumes([]Volume{claimOf("a", "db:/data").limited("* wbps=2Mi").classed("", "50")})
	former := NewVolumes([]Volume{claimOf("a", "db:/data").classed("", "50")})
	d, err := decideClaims(t, "", map[string]string{bareLimits: "rootfs wbps=3Mi"}, claims)
	want := []string{"sda wbps=3Mi from limits.blkio.noderesource.dev #1", "sdb riops=50 from claim a, class fast"}
	if diff := cmp.Diff(want, sources(d)); diff != "" || err != nil || !slices.Equal(d.Warnings, []string{warning}) || len(d.Claims)+len(d.Unenforced) > 0 {
		t.Errorf("%v, %q, %v, -want +got:\n%s", err, d.Warnings, d.Claims, diff)
	}
	if !slices.Equal(claims.ChangedClaims(former), []string{"a"}) || claims.Equal(former) {
		t.Error("the annotation is no change")
	}
	ignoring, err := decideClaims(t, "rules: [{name: all, annotations: ignore}]\n", nil, claims)
	if err != nil || len(ignoring.Settings) > 0 || !slices.Equal(ignoring.Warnings, []string{"rule all of the node policy ignores the limits of claims"}) {
		t.Errorf("%v, %+v", err, ignoring)
	}
}

// TestBoth verifies that bps and iops are those of the kernel's keys for floors, bounds, budgets and classes.
func TestBoth(t *testing.T) {
	const policy = "bounds: {max: ['* bps=4Mi'], min: ['* iops=50']}\nclasses: {slow: {limits: ['* bps=1Mi iops=60']}}\nbudgets: [{namespaces: [team], limits: ['* bps=9Mi']}]\n"
	for value, want := range map[string]string{
		"* bps=2Mi iops=70":  "",
		"* bps=5Mi":          `rbps=5Mi is above the bound`,
		"* bps=2Mi iops=9":   `riops=9 is below the bound`,
		"* bps=2Mi riops=9":  `riops=9 is below the bound`,
		"* bps=1Ki":          `rbps=1Ki is under this node's floor`,
		"* bps=1Mi wbps=2Mi": `the keys "bps" and "wbps" set the same limit`,
	} {
		d, err := decideClaims(t, policy, map[string]string{bareLimits: value}, NewVolumes(nil))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", value, err, want)
		case want == "" && (len(d.Uses) == 0 || len(d.Settings) != 3*4):
			t.Errorf("%s: %q, uses %v", value, sources(d), d.Uses)
		}
	}
	d, err := decideClaims(t, policy, map[string]string{"class.blkio.noderesource.dev": "slow"}, NewVolumes(nil))
	if err != nil || len(d.Settings) != 3*4 || !slices.Contains(sources(d), "sdb wiops=60 from class slow") {
		t.Errorf("%v, %q", err, sources(d))
	}
}

// TestDefaultClass verifies that annotations can choose the class of the default policy.
func TestDefaultClass(t *testing.T) {
	d, err := decideClaims(t, "", map[string]string{"class.blkio.noderesource.dev/containers": "batch"}, NewVolumes(nil))
	if s, found := d.Settings.Weight(); err != nil || !found || s.Amount != 10 {
		t.Errorf("%v, %+v", err, d.Settings)
	}
}
