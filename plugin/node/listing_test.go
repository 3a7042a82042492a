package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestCompareListed verifies that pods are found by their cgroups and by their UIDs, with both cgroup drivers, and that
// a pod counts only once a container runs beside its sandbox.
func TestCompareListed(t *testing.T) {
	const (
		listed     = "kubepods.slice/kubepods-podaa_11.slice"
		elsewhere  = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbb_22.slice"
		unlisted   = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podcc_33.slice"
		ofCgroupfs = "kubepods/burstable/poddd-44"
		starting   = "kubepods.slice/kubepods-podee_55.slice"
	)
	k := fakenode.NewKernel(t)
	for _, pod := range []string{listed, elsewhere, unlisted, ofCgroupfs, starting} {
		k.Make(pod, true)
		k.Make(pod+"/sandbox", true)
		k.Make(pod+"/container", pod != starting)
	}
	n := newNode(t, k.Open(t, t.Context().Done()))
	compare := func(want Listing) {
		t.Helper()
		got, err := n.CompareListed()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v, difference to what is wanted:\n%s", err, diff)
		}
	}
	compare(Listing{Unlisted: []string{"dd-44", "bb-22", "cc-33", "aa-11"}})
	n.Synchronize([]*Sandbox{
		{ID: "s1", UID: "other", Cgroup: "/" + listed},
		{ID: "s2", UID: "bb-22", Cgroup: "/another.slice"},
	}, nil)
	compare(Listing{Listed: 2, Unlisted: []string{"dd-44", "cc-33"}})
}
