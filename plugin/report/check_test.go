package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

var strayAnnotation = []manifest.Finding{{
	Position: manifest.Position{File: "a.yaml", Line: 3}, Object: manifest.Object{Kind: "Deployment", Name: "web"},
	Severity: manifest.Error, Text: "no effect here\x1b[2J",
}}

// TestWriteCheck verifies the order of the sections, and that a pod with an error is not one without limits.
func TestWriteCheck(t *testing.T) {
	source := []policy.Source{{Name: "limits.blkio.noderesource.dev/containers", Entry: 1, Target: "rootfs"}}
	r := check.Report{
		Findings: strayAnnotation,
		Pods: []check.Result{
			{
				Object:   manifest.Object{Kind: "Pod", Namespace: "prod", Name: "db-0"},
				Writes:   []check.Write{{Container: "db", Disk: "sda", Dev: "8:0", File: blkio.IOMax, Line: "8:0 wbps=1048576", Sources: source}, {File: blkio.IOWeight, Line: "50"}},
				Warnings: []string{"w"}, Skipped: []string{"s"}, Unknown: []string{"u"},
				Meaning: check.Meaning{Rule: "batch", Notes: []string{"n"}},
			},
			{Object: manifest.Object{Kind: "Pod", Name: "\x1b"}, Errors: []string{"e"}, Effects: []string{"it is not created"}},
			{Object: manifest.Object{Kind: "Pod", Name: "web"}},
		},
	}
	var out bytes.Buffer
	WriteCheck(&out, &r, true)
	want := `error: a.yaml:3: Deployment web: no effect here\x1b[2J

Pod prod/db-0 (rule batch)
CGROUP        DISK  FILE       LINE              FROM
container db  sda   io.max     8:0 wbps=1048576  limits/containers #1
pod           -     io.weight  50                -
warning: w
skipped: s
note: n
unknown: u

Pod "\x1b"
error: e
effect: it is not created

Pod web
nothing to limit
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWriteSharedUnknown verifies that what is unknown for several pods is written once, with their number.
func TestWriteSharedUnknown(t *testing.T) {
	pod := func(name string, unknown ...string) check.Result {
		return check.Result{Object: manifest.Object{Kind: "Pod", Name: name}, Unknown: unknown, Meaning: check.Meaning{Notes: []string{"n"}}}
	}
	r := check.Report{Pods: []check.Result{pod("a", "shared", "own"), pod("b", "two", "shared"), pod("c", "shared", "two")}}
	var out bytes.Buffer
	WriteCheck(&out, &r, false)
	want := `Pod a
nothing to limit
note: n
unknown: own

Pod b
nothing to limit
note: n

Pod c
nothing to limit
note: n

unknown: shared (3 pods)
unknown: two (2 pods)
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWriteLimits verifies that a narrow table has limits in the words of annotations, and no backstop.
func TestWriteLimits(t *testing.T) {
	source := []policy.Source{{Name: "limits.blkio.noderesource.dev/containers", Entry: 1, Target: "rootfs"}}
	var out bytes.Buffer
	writeLimits(&out, []check.Write{
		{Container: "db", Disk: "sda", File: blkio.IOMax, Line: "8:0 wbps=1048576", Limit: "wbps=1Mi", Sources: source},
		{Disk: "sda", File: blkio.IOMax, Line: "8:0 wbps=1048576", Limit: "wbps=1Mi", Sources: []policy.Source{{Kind: policy.FromBackstop}}},
		{File: blkio.IOWeight, Line: "50", Limit: "weight 50", Sources: source},
	}, false)
	want := `CONTAINER  DISK  LIMIT      FROM
db         sda   wbps=1Mi   limits/containers #1
(the pod)  -     weight 50  limits/containers #1
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWriteEffects verifies that a weight has the state of io.cost, or the reason why it has no effect.
func TestWriteEffects(t *testing.T) {
	var out bytes.Buffer
	if writeEffects(&out, nil); out.Len() > 0 {
		t.Errorf("without weights: %q", out.String())
	}
	writeEffects(&out, []check.WeightEffect{
		{Container: "db", Disk: "sda", Weight: 300, State: "on", Model: "policy"},
		{Container: "log", Disk: "sda", Weight: 100, State: "on demand", Model: "kernel"},
		{Disk: "sdb", Weight: 50, State: "no", Reason: "weights: off"},
	})
	want := `WEIGHT OF      DISK  WEIGHT  IO.COST
container db   sda   300     on, model from policy
container log  sda   100     on demand, model from kernel
pod            sdb   50      no: weights: off
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
