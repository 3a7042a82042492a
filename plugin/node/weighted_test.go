package node

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestWeighted verifies the demand of pods for weights, from the first container to the last.
func TestWeighted(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	want := func(when string, d weights.Demand) {
		t.Helper()
		if diff := cmp.Diff(d, n.Weighted()); diff != "" {
			t.Errorf("%s:\n%s", when, diff)
		}
	}
	want("before the runtime has listed what runs", weights.Demand{Unknown: "the runtime has not listed what runs"})
	n.Synchronize(nil, nil)
	want("without a pod", weights.Demand{Complete: true})
	sb := sandbox(map[string]string{weightKey + "containers": "30", weightKey + "pod-total": "50"})
	start(t, n, sb, "a")
	n.pass(t.Context())
	of := func(container, cgroup string, weight uint32) weights.Weighted {
		return weights.Weighted{
			Namespace: "prod", Pod: "db-0", Container: container, Cgroup: cgroup, Disks: []blkio.Disk{rootDisk}, Weights: blkio.Weights{Default: weight},
		}
	}
	running := weights.Demand{Weighted: []weights.Weighted{of("a", cgroupOf("a"), 30), of("", podCgroup, 50)}, Complete: true}
	want("while a container runs", running)
	pol := policy.Default()
	pol.Mode = policy.ModeObserve
	n.Reload(pol)
	want("observed", weights.Demand{Complete: true})
	n.Reload(policy.Default())
	n.pass(t.Context())
	want("again", running)
	write(t, filepath.Join(dir, cgroupOf("a"), "cgroup.events"), "populated 0\nfrozen 0\n")
	n.Stopped(sb.ID, "id-a")
	n.RemovedPod(sb.ID)
	n.pass(t.Context())
	want("after the pod", weights.Demand{Complete: true})
}

// TestWeightedCleared verifies that a weight that an operator has cleared is not in the demand.
func TestWeightedCleared(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	n.Synchronize(nil, nil)
	sb := sandbox(map[string]string{weightKey + "containers": "30", weightKey + "pod-total": "50"})
	start(t, n, sb, "a")
	start(t, n, sb, "b")
	n.pass(t.Context())
	all := len(n.Weighted().Weighted)
	clearer := enforce.Clearer{}
	for _, cg := range []struct{ path, kind string }{{cgroupOf("a"), record.KindContainer}, {podCgroup, record.KindPod}} {
		at := h.Cgroup(cg.path)
		r, err := record.Read(at, cg.kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clearer.Clear(at, r); err != nil {
			t.Fatal(err)
		}
	}
	n.pass(t.Context())
	d := n.Weighted()
	if got := d.Weighted; all != 3 || len(got) != 1 || got[0].Container != "b" {
		t.Errorf("%d before, after it %+v", all, got)
	}
	if diff := cmp.Diff([]blkio.Disk{rootDisk, rootDisk}, d.Cleared); diff != "" {
		t.Errorf("cleared on:\n%s", diff)
	}
}
