package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestCheckCgroup2 verifies that another filesystem is refused with a hint.
func TestCheckCgroup2(t *testing.T) {
	err := checkCgroup2("/proc")
	if !errors.Is(err, blkio.ErrNotSupported) || !strings.Contains(err.Error(), "filesystem type 0x9fa0") {
		t.Errorf("/proc: %v", err)
	}
	if err := checkCgroup2(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := OpenFake(filepath.Join(t.TempDir(), "none"), Fake{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a fake tree without a directory: %v", err)
	}
}

// TestByIDOutside verifies that an ID that is not of this tree gives an error with the ID,
// and that of the root the root.
func TestByIDOutside(t *testing.T) {
	h, _ := newHierarchy(t, nil)
	if c, err := h.ByID(rootID); c.Path() != "." || err != nil {
		t.Errorf("the root: %q, %v", c.Path(), err)
	}
	c, err := h.ByID(123456789)
	if err == nil || !strings.HasPrefix(err.Error(), "find cgroup 123456789: ") || c != (Cgroup{}) {
		t.Errorf("%q, %v", c.path, err)
	}
	before := openFiles(t)
	for id := range uint64(50) {
		_, _ = h.ByID(1 << 40 * (id + 1)) // an error, as above
	}
	if got := openFiles(t); got != before {
		t.Errorf("%d descriptors, before %d", got, before)
	}
}

// TestErrorsHideTheCgroup verifies that the cause of an error is the same for each cgroup. A retried creation
// has another cgroup, and repeated events are merged by their text.
func TestErrorsHideTheCgroup(t *testing.T) {
	h, _ := newHierarchy(t, nil)
	causes := map[string]bool{}
	for i := range 3 {
		err := h.Cgroup(fmt.Sprintf("pod/%d", i)).Write(blkio.Line{File: blkio.IOMax, Text: "8:16 wbps=5"})
		var e *CgroupError
		if !errors.As(err, &e) || e.Cgroup != fmt.Sprintf("pod/%d", i) || e.Op != "write" || e.Data != "8:16 wbps=5" {
			t.Fatalf("got %+v", err)
		}
		causes[e.Cause()] = true
	}
	if len(causes) != 1 {
		t.Errorf("causes %v", causes)
	}
}
