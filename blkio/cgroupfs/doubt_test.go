package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestExistsInDoubt verifies that a cgroup that cannot be read does not count as removed. Here the kernel
// refuses the path; a process without a free descriptor is another case.
func TestExistsInDoubt(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"pod/io.max": ""})
	if err := os.Symlink("pod", filepath.Join(h.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if c := h.Cgroup("link"); !c.Exists() {
		t.Error("taken for removed")
	}
	if _, err := h.Cgroup("link").ReadIOStat(); errors.Is(err, blkio.ErrGone) {
		t.Errorf("a failed read is reported as a removed cgroup: %v", err)
	}
	if _, err := h.Cgroup("link").Populated(); err == nil {
		t.Error("taken for a cgroup without processes")
	}
	if populated, err := h.Cgroup("gone").Populated(); populated || err != nil {
		t.Errorf("a removed one: %v, %v", populated, err)
	}
}
