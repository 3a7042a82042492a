package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestInvalidate verifies that a container is resolved again while its disks may change.
func TestInvalidate(t *testing.T) {
	for options, want := range map[string]bool{"rslave": true, "rprivate": false} {
		f := Finder{Storage: newHost()}
		c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", options)}})
		if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if got := c.Invalidate(); got != want || c.Follows() != want || c.Propagates() != want || c.IsResolved() == want {
			t.Errorf("%s: Invalidate returned %t, want %t: %+v", options, got, want, c)
		}
	}
}

// TestInvalidateAtMore verifies that a container on a filesystem that can get more disks is resolved again.
func TestInvalidateAtMore(t *testing.T) {
	h := newHost()
	h.Find = func(string) blkio.Backing { return blkio.Backing{FSType: "btrfs", Disks: []blkio.Disk{dataDisk}} }
	f, c := Finder{Storage: h}, NewContainer(&Spec{})
	if err := f.Find(t.Context(), podWith("rootfs wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	if !c.Follows() || c.Propagates() || !c.Invalidate() || c.IsResolved() {
		t.Errorf("follows %t, propagates %t, resolved %t", c.Follows(), c.Propagates(), c.IsResolved())
	}
}

// TestAncestorStats verifies that each cgroup above is read once, and decides only if it can be read.
func TestAncestorStats(t *testing.T) {
	reads := map[string]int{}
	stats := map[string]map[blkio.Dev]blkio.Stat{
		"pods":   {dataDisk.Dev: {Rbytes: 1}, lowerDisk.Dev: {Wbytes: 1}},
		"pods/a": {dataDisk.Dev: {Rbytes: 1}, lowerDisk.Dev: {}},
	}
	s := NewAncestorStats(func(cgroup string) (map[blkio.Dev]blkio.Stat, error) {
		reads[cgroup]++
		if stats[cgroup] == nil {
			return nil, errAnswer
		}
		return stats[cgroup], nil
	})
	facts := &policy.Container{Rootfs: on(dataDisk)}
	for cgroup, want := range map[string]bool{"pods/a/c": false, "pods/a/d": false, "pods/b/c": true} {
		if got := s.MayUseUndeclared(cgroup, facts); got != want {
			t.Errorf("%s: %t", cgroup, got)
		}
		if got := s.IsClear(cgroup, facts); got == want {
			t.Errorf("%s is clear: %t", cgroup, got)
		}
	}
	if s.IsClear("pods/c/d", facts) {
		t.Error("a cgroup is clear by counters that were not read")
	}
	if diff := cmp.Diff(map[string]int{"pods": 1, "pods/a": 1, "pods/b": 1}, reads); diff != "" {
		t.Error(diff)
	}
}
