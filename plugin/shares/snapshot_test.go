package shares

import (
	"maps"
	"math"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestSnapshot verifies that a pod that joins competes with all containers that have used the disk, in whatever
// pods they are, and nothing is written.
func TestSnapshot(t *testing.T) {
	const d = "kubepods.slice/kubepods-podd.slice/cri-d.scope"
	k := newKernel(t, map[string]string{a: "default 100\n", c: "default 200\n", d: "default 300\n"})
	k.use(vda, a, c)
	k.use(vdb, d)
	k.given[podC] = blkio.Weights{Default: 400}
	joining := Cgroup{Path: "new", Active: true, Children: []Cgroup{
		{Path: "new/0", Weight: 300, Active: true}, {Path: "new/1", Weight: 200, Active: true},
	}}
	whole := joining
	whole.Weight = 500
	for _, tt := range []struct {
		name   string
		dev    blkio.Dev
		pod    Cgroup
		want   map[string]float64
		rivals int
	}{
		{"a and c, whose pod has 400", vda, joining, map[string]float64{"new": 0.5, "new/0": 0.3, "new/1": 0.2}, 2},
		{"with a weight as a whole", vda, whole, map[string]float64{"new": 0.5, "new/0": 0.3, "new/1": 0.2}, 2},
		{"the weight of d", vdb, joining, map[string]float64{"new": 0.625, "new/0": 0.375, "new/1": 0.25}, 1},
		{"unused", blkio.Dev{Major: 8}, joining, map[string]float64{"new": 1, "new/0": 0.6, "new/1": 0.4}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := ReadSnapshot(k.keeper.cgroups, k.given)
			if err != nil {
				t.Fatal(err)
			}
			got, rivals := s.Beside(tt.dev, tt.pod)
			same := maps.EqualFunc(got, tt.want, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
			if !same || rivals != tt.rivals || len(k.writes) > 0 {
				t.Errorf("%v beside %d, want %v beside %d; wrote %q", got, rivals, tt.want, tt.rivals, k.writes)
			}
		})
	}
}

// TestSnapshotAgrees verifies that the share is the one that a Keeper computes once the pod runs.
func TestSnapshotAgrees(t *testing.T) {
	k := newKernel(t, map[string]string{a: "default 100\n", c: "default 200\n"})
	k.use(vda, a, c)
	s, err := ReadSnapshot(k.keeper.cgroups, k.given)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := s.Beside(vda, Cgroup{Path: "new", Active: true, Children: []Cgroup{{Path: "new/0", Weight: 300, Active: true}}})
	k.make(b, "default 300\n")
	got := map[string]float64{}
	for range 2 { // the second pass sees the use of the disk since the first one
		k.use(vda, a, b, c)
		r, err := k.keeper.Pass(k.now, Demand{Disks: []blkio.Dev{vda}, Given: k.given})
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range r.Shares[vda] {
			got[share.Path] = share.Fraction
		}
	}
	if math.Abs(got[b]-0.5) > 1e-9 || math.Abs(before["new/0"]-0.5) > 1e-9 {
		t.Errorf("%g, before %g", got[b], before["new/0"])
	}
}

// TestSnapshotWithoutPods verifies that a node without pods has no rivals.
func TestSnapshotWithoutPods(t *testing.T) {
	s, err := ReadSnapshot(newKernel(t, nil).keeper.cgroups, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, rivals := s.Beside(vda, Cgroup{Path: "new", Weight: 10}); got["new"] != 1 || rivals != 0 {
		t.Errorf("%v beside %d", got, rivals)
	}
}
