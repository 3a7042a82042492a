package node

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// TestDisksByName verifies that a class limits disks by their names from the first pass on: those of the container,
// those below them, and an undeclared one. The same holds after a restart, and a disk below another does not become an
// undeclared one.
func TestDisksByName(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	s := newStacked()
	low := blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "sda"}
	s.under[dataDisk.Dev] = []blkio.Disk{low, {Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}}
	pol := rules(t, "  named: {limits: ['disk:vdb wbps=5Mi', 'disk:sda wbps=6Mi', 'disk:plug* wbps=7Mi', '* rbps=9Mi']}\nrules: [{name: all, class: named}]")
	node := func() *Node {
		n := newNode(t, h)
		n.storage = s
		n.policy.Store(pol)
		return n
	}
	c := ctr("a", bind("/mnt/data", "/data", "rbind"))
	n := node()
	if err := n.start(t.Context(), sandbox(nil), c, true); err != nil {
		t.Fatal(err)
	}
	both := blkio.Limits{blkio.Rbps: 9 << 20, blkio.Wbps: 5 << 20}
	want := map[blkio.Dev]blkio.Limits{rootDisk.Dev: {blkio.Rbps: 9 << 20}, dataDisk.Dev: both, low.Dev: {blkio.Wbps: 6 << 20}}
	check := func(when string, n *Node) {
		t.Helper()
		n.reconcileAll(t.Context())
		if diff := cmp.Diff(want, s.lines(t, n)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", when, diff)
		}
	}
	check("started", n)
	write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), moved(2*inventory.MinUsage, "254:16", "8:0", "8:32", "8:16"))
	want[plugged.Dev] = blkio.Limits{blkio.Rbps: 9 << 20, blkio.Wbps: 7 << 20}
	check("with an undeclared disk", n)

	n = node()
	running := listed("a", isRunning)
	running.Spec = c.Spec
	n.Synchronize([]*Sandbox{sandbox(nil)}, []*Container{running})
	check("restarted", n)
	n.Reload(rules(t, "rules: [{name: all, class: data}]"))
	want = map[blkio.Dev]blkio.Limits{dataDisk.Dev: {blkio.Wbps: 5 << 20}}
	check("with another class", n)
}
