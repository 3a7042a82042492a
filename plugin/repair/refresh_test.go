package repair

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// brokenTree is a cgroup tree that cannot be read.
type brokenTree struct {
	Cgroups
	err error
}

func (b brokenTree) Walk(xattr string, fn func(cgroupfs.Cgroup, cgroupfs.Attribute) error) error {
	if b.err != nil {
		return b.err
	}
	return b.Cgroups.Walk(xattr, fn)
}

// brokenStorage is one that cannot be read.
type brokenStorage struct{ fakeStorage }

func (brokenStorage) Refresh(context.Context) error { return errIO }

// TestRefresh verifies that the filesystems with limits are watched. Errors of reads are logged, and the known
// limits stay.
func TestRefresh(t *testing.T) {
	n := newNodeTest(t)
	tree, disks := n.domains.cgroups, n.watch.storage
	refresh := func(t *testing.T, watched int, complaints ...string) {
		t.Helper()
		n.refresh(t.Context())
		if len(n.watch.filesystems) != watched || len(n.domains.subjects) != watched {
			t.Errorf("%d filesystems are watched for %d limits, want %d", len(n.watch.filesystems), len(n.domains.subjects), watched)
		}
		n.wantComplaints(t, complaints...)
	}
	refresh(t, 1)
	n.domains.cgroups = brokenTree{tree, errIO}
	refresh(t, 1, "records")
	n.domains.cgroups, n.watch.storage = tree, brokenStorage{}
	refresh(t, 1, "filesystems")
	n.watch.storage, n.observer.err = disks, errIO
	refresh(t, 1, "watch")
	n.observer.err = nil
	refresh(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.watch.storage = brokenStorage{}
	n.refresh(ctx) // at the end of the process an error is none
	n.wantComplaints(t)
	n.watch.storage = disks
	if err := record.Remove(tree.Cgroup("kubepods/podone/a"), record.KindContainer); err != nil {
		t.Fatal(err)
	}
	refresh(t, 0)
}

// TestRefreshForgets verifies that files of a filesystem that was unmounted are forgotten, and passes over them
// end.
func TestRefreshForgets(t *testing.T) {
	n := newNodeTest(t)
	n.writes(n.watches(7), "one", "a", 3)
	if n.acts(); len(n.passes.busy) != 1 {
		t.Fatalf("%d passes", len(n.passes.busy))
	}
	n.refresh(t.Context()) // only 8:0 is mounted
	if len(n.ledger.files) > 0 {
		t.Errorf("%d files are known", len(n.ledger.files))
	}
	n.acts()
	for _, pass := range n.passes.busy {
		if len(pass.stop) != 1 {
			t.Error("the pass goes on")
		}
	}
}

// TestWithoutSubvolumes verifies that btrfs that was loaded after the programs is watched when they have been
// loaded again, which is tried once a minute.
func TestWithoutSubvolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		btrfs := &filesystem{dev: blkio.Dev{Minor: 40}, fstype: "btrfs", mountpoint: "/b"}
		ext4 := &filesystem{dev: blkio.Dev{Major: 8}, fstype: "ext4", mountpoint: "/data"}
		loads := 0
		var next *fakeObserver // nil: none can be loaded
		n.watch.load = func() (observer, error) {
			if loads++; next == nil {
				return nil, errIO
			}
			return next, nil
		}
		watch := func(want int) {
			t.Helper()
			watched := map[blkio.Dev]*filesystem{ext4.dev: ext4, btrfs.dev: btrfs}
			n.withoutSubvolumes(watched)
			if len(watched) != want || watched[ext4.dev] == nil {
				t.Errorf("watched are %v, want %d", watched, want)
			}
		}
		watch(2)
		n.wantComplaints(t)
		old := &fakeObserver{noSubvolumes: true}
		n.watch.observer = old
		time.Sleep(2 * reloadEvery)
		watch(1)
		watch(1)
		n.wantComplaints(t, "btrfs")
		if loads != 1 || old.closed {
			t.Errorf("%d loads, the old one is closed: %v", loads, old.closed)
		}
		time.Sleep(2 * reloadEvery)
		next = &fakeObserver{}
		watch(2)
		n.wantComplaints(t)
		if loads != 2 || !old.closed {
			t.Errorf("%d loads, the old one is closed: %v", loads, old.closed)
		}
	})
}
