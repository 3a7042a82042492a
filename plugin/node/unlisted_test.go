package node

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
)

// restarted returns an instance that the runtime has started again and does not list anything to. Before,
// the containers of a pod were started.
func restarted(t *testing.T, annotations map[string]string, names ...string) (n *Node, h *cgroupfs.Hierarchy, dir string) {
	t.Helper()
	cgroups := []string{podCgroup}
	for _, name := range names {
		cgroups = append(cgroups, cgroupOf(name))
	}
	h, dir = tree(t, cgroups...)
	former := newNode(t, h)
	start(t, former, sandbox(annotations), names...)
	former.pass(t.Context())
	n = newNode(t, h)
	n.Unlisted()
	return n, h, dir
}

// end removes the last process of a cgroup.
func end(t *testing.T, dir string, cgroups ...string) {
	t.Helper()
	for _, cgroup := range cgroups {
		write(t, filepath.Join(dir, cgroup, "cgroup.events"), "populated 0\nfrozen 0\n")
	}
}

// wantUnknown makes a pass after which that is unknown, "" for nothing.
func wantUnknown(t *testing.T, n *Node, unknown string) {
	t.Helper()
	n.pass(t.Context())
	if d := n.Weighted(); d.Complete != (unknown == "") || !strings.Contains(d.Unknown, unknown) {
		t.Errorf("%+v, want unknown %q", d, unknown)
	}
}

// TestUnlisted verifies that the demand for weights is complete once no cgroup has a record with a weight,
// where the runtime never lists its containers.
func TestUnlisted(t *testing.T) {
	n, _, dir := restarted(t, map[string]string{weightKey + "containers": "30", weightKey + "pod-total": "* 60; rootfs 50"}, "a", "b")
	if d := n.Weighted(); d.Complete || d.Unknown != "the runtime has not listed what runs" {
		t.Errorf("at first: %+v", d)
	}
	wantUnknown(t, n, "pod prod/db-0 (and 2 more) runs with a weight by the record on its cgroup, and the runtime has not listed it")
	byCgroup := map[string]blkio.Weights{}
	for _, w := range n.Weighted().Weighted {
		byCgroup[w.Cgroup] = w.Weights
	}
	want := map[string]blkio.Weights{
		cgroupOf("a"): {Default: 30}, cgroupOf("b"): {Default: 30},
		podCgroup: {Default: 60, Devices: map[blkio.Dev]uint32{rootDisk.Dev: 50}},
	}
	if diff := cmp.Diff(want, byCgroup); diff != "" {
		t.Error(diff)
	}
	end(t, dir, cgroupOf("a"))
	wantUnknown(t, n, "(and 1 more)")
	end(t, dir, cgroupOf("b"), podCgroup)
	wantUnknown(t, n, "")
	if diff := cmp.Diff(weights.Demand{Complete: true}, n.Weighted()); diff != "" {
		t.Error(diff)
	}
}

// TestUnlistedUnreadable verifies that a record that cannot be read may have a weight, while its cgroup has a
// process.
func TestUnlistedUnreadable(t *testing.T) {
	n, h, dir := restarted(t, map[string]string{weightKey + "containers": "30"}, "a")
	at, name := record.PlaceOf(h.Cgroup(cgroupOf("a")), record.KindContainer)
	if err := unix.Setxattr(filepath.Join(dir, at.Path()), name, []byte("{"), 0); err != nil {
		t.Fatal(err)
	}
	wantUnknown(t, n, "cgroup "+cgroupOf("a")+": parse record user.nri-blkio")
	end(t, dir, cgroupOf("a"))
	wantUnknown(t, n, "")
}

// TestUnlistedIsCopied verifies that a weight that is added to one demand is not in another one.
func TestUnlistedIsCopied(t *testing.T) {
	for _, problems := range [][]string{nil, {"a record cannot be read"}} {
		var l listing
		l.unlisted.Store(&unlisted{weighted: make([]weights.Weighted, 1, 4), problems: problems})
		one, two := l.demand().Weighted, l.demand().Weighted
		one, two = append(one, weights.Weighted{Pod: "a"}), append(two, weights.Weighted{Pod: "b"})
		if one[1].Pod != "a" || two[1].Pod != "b" {
			t.Errorf("%+v and %+v", one, two)
		}
	}
}
