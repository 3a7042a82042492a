package writeback

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// deadOwners finds the files of an arena whose owner is a removed cgroup.
type deadOwners struct {
	*arena
	reader *writeback.OwnerReader
	tree   *cgroupfs.Hierarchy
}

func (s *arena) deadOwners() deadOwners {
	s.Helper()
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		s.Fatal(err)
	}
	tree, err := cgroupfs.OpenHierarchy(cgroup.Root)
	if err != nil {
		s.Fatal(err)
	}
	return deadOwners{s, reader, tree}
}

func (d *deadOwners) close() {
	d.reader.Close()
	d.tree.Close()
}

// has reports whether the owner of a file is a removed cgroup.
func (d *deadOwners) has(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		d.Fatal(err)
	}
	defer f.Close()
	owner, err := d.reader.Owner(f)
	if err != nil {
		d.Fatal(err)
	}
	if owner.Cgroup == 0 {
		return false
	}
	_, err = d.tree.ByID(owner.Cgroup)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		d.Fatal(err)
	}
	return err != nil
}

// release releases files from removed cgroups, as the plugin does at each end of a container. It
// returns an error if one of the files is not released.
func (d *deadOwners) release(files []string) error {
	if _, err := lab.Command(d.T, "sync", d.dir); err != nil {
		return err
	}
	if err := d.tree.Cgroup(".").ReleaseRemovedOwners(); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if i := slices.IndexFunc(files, d.has); i >= 0 {
		return fmt.Errorf("%s belongs to a removed cgroup", files[i])
	}
	return nil
}

// leavesNothing removes the writers and verifies that, after the release, no file belongs to a removed cgroup.
// Before that it makes sure that one does.
func (s *arena) leavesNothing() {
	s.Helper()
	dead := s.deadOwners()
	defer dead.close()
	left := filepath.Join(s.dir, "left")
	lab.WriteFile(s.T, left, "")
	s.a.Writes(left, 1, "64k", "oflag=append")
	s.a.Remove()
	s.b.Remove()
	if !dead.has(left) {
		s.Error("no file belongs to a removed cgroup: the case cannot show anything")
	}
	files := s.files()
	if dead.release(files) == nil {
		return
	}
	// A cgroup from which a dirty file has moved counts as having dirty ones until one of its
	// files is written out again (docs/reference/quirks.md). As the next writer would:
	lab.Within(s.T, lab.Deadline, "no file is of a dead cgroup once one is written to", func() error {
		if i := slices.IndexFunc(files, dead.has); i >= 0 {
			lab.Administer(s.T, "dd", "status=none", "if=/dev/zero", "of="+files[i], "bs=1", "count=1", "oflag=append", "conv=notrunc")
			s.Logf("%s is written to", filepath.Base(files[i]))
		}
		return dead.release(files)
	})
}
