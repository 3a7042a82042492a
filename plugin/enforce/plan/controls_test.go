package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestDiskWeights verifies that the weight on a disk is wanted where io.cost is enabled, and recorded anyway.
// The weight of a pod is left to the Keeper that divides the disk between pods.
func TestDiskWeights(t *testing.T) {
	pol := policy.Default()
	annotations := map[string]string{weight + "containers": "/data 50; rootfs 60; * 70", weight + "pod-total": "/data 40"}
	for _, tt := range []struct {
		name     string
		enabled  map[blkio.Dev]bool
		want     string
		warnings []string
	}{
		{name: "unknown", want: "default 70"},
		{name: "on no disk", enabled: map[blkio.Dev]bool{}, want: "default 70", warnings: []string{weightIdle}},
		{
			name: "on one disk", enabled: map[blkio.Dev]bool{vdb.Dev: true}, want: "default 70, 254:16 50",
			warnings: []string{"the weight has no effect on disk vda 254:0: io.cost is not enabled there"},
		},
		{name: "on both", enabled: map[blkio.Dev]bool{vda.Dev: true, vdb.Dev: true}, want: "default 70, 254:0 60, 254:16 50"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := viewOf(t, pol, annotations, "a")
			v.Controls.Enabled = tt.enabled
			got := New(v)
			c := got.Containers[0]
			if text(c.Want) != tt.want || text(c.Record.Settings) != "default 70, 254:0 60, 254:16 50" {
				t.Errorf("want %s, recorded %s", text(c.Want), text(c.Record.Settings))
			}
			if diff := cmp.Diff(tt.warnings, c.Record.Warnings); diff != "" {
				t.Error(diff)
			}
			if len(got.Pod.Want) > 0 || len(got.Pod.Record.Settings) > 0 || text(got.Pod.Weights) != "254:16 40" {
				t.Errorf("pod %s, recorded %s, weights %s", text(got.Pod.Want), text(got.Pod.Record.Settings), text(got.Pod.Weights))
			}
			if text(got.Pod.Record.Weights) != "254:16 40" {
				t.Errorf("the record of the pod has the weights %q", text(got.Pod.Record.Weights))
			}
			if spec := InSpec(c.Record.Settings, true); text(spec) != "default 70" {
				t.Errorf("in the OCI spec: %s", text(spec))
			}
		})
	}
}

func TestWeightsWork(t *testing.T) {
	for _, tt := range []struct {
		w    Controls
		want bool
	}{{Controls{}, true}, {Controls{Enabled: map[blkio.Dev]bool{}}, false}, {Controls{Enabled: map[blkio.Dev]bool{vda.Dev: true}}, true}} {
		if got := tt.w.Work(); got != tt.want {
			t.Errorf("%+v works: %t", tt.w, got)
		}
	}
	if w := (Controls{Enabled: map[blkio.Dev]bool{}}).warnings(&policy.Desired{}); !slices.Equal(w, nil) {
		t.Errorf("without a weight: %q", w)
	}
}
