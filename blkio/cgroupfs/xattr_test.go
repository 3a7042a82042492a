package cgroupfs

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestXattrOfRoot verifies that an owner without capabilities can change the attributes of a directory that it
// may not write to, such as the root of cgroupfs, and that the mode stays.
func TestXattrOfRoot(t *testing.T) {
	const name, mode, other = "user.nri-blkio", 0o555, 65534
	h, dir := newHierarchy(t, map[string]string{"c/io.max": ""})
	owner := os.Geteuid()
	if owner == 0 {
		owner = other // root has CAP_DAC_OVERRIDE, and loses it below
	}
	if err := errors.Join(os.Chown(dir, owner, -1), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	as := func(uid int, do func() error) error {
		runtime.LockOSThread() // the user of the filesystem is that of a thread
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(uid); err != nil {
			return err
		}
		return errors.Join(do(), unix.Setfsuid(os.Geteuid()))
	}
	write := func(path string) error {
		return as(owner, func() error { return h.Cgroup(path).WriteXattr(name, []byte("v")) })
	}
	if err := write("."); errors.Is(err, blkio.ErrNotSupported) {
		t.Skipf("the temporary directory has no user attributes: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	value, err := h.Cgroup(".").ReadXattr(name)
	if string(value) != "v" || err != nil {
		t.Errorf("read %q, %v, want v", value, err)
	}
	checkError(t, as(owner, func() error { return h.Cgroup(".").RemoveXattr(name) }), "")
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != mode {
		t.Errorf("the directory has %v, %v, want the mode %o", st.Mode(), err, mode)
	}
	if err := write("c"); owner == other && !errors.Is(err, os.ErrPermission) {
		t.Errorf("an attribute of another user's directory: %v, want no permission", err)
	}
}

func TestXattr(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"pod/c/io.max": "", "pod/d/io.max": "", "pod-2/io.max": "", "other/io.max": ""})
	const name = "user.nri-blkio"
	c := h.Cgroup("pod/c")
	if err := c.WriteXattr(name, []byte("v")); errors.Is(err, blkio.ErrNotSupported) || errors.Is(err, os.ErrPermission) {
		t.Skipf("the temporary directory has no user attributes: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	value, err := c.ReadXattr(name)
	checkError(t, err, "")
	if string(value) != "v" {
		t.Errorf("read %q", value)
	}
	value, err = h.Cgroup("pod/d").ReadXattr(name)
	if value != nil || err != nil {
		t.Errorf("without one: %q, %v", value, err)
	}
	if value, err = h.Cgroup("pod/removed").ReadXattr(name); value != nil || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("of a removed cgroup: %q, %v", value, err)
	}
	long := strings.Repeat("x", 3000)
	checkError(t, h.Cgroup("pod-2").WriteXattr(name, []byte(long)), "")
	value, err = h.Cgroup("pod-2").ReadXattr(name)
	checkError(t, err, "")
	if string(value) != long {
		t.Errorf("a long one reads back as %d bytes", len(value))
	}
	checkError(t, h.Cgroup("pod").WriteXattr(name, nil), "")

	var walked []string
	walk := func() error {
		return h.Walk(name, func(c Cgroup, a Attribute) error {
			walked = append(walked, c.Path()+"="+string(a.Value))
			return nil
		})
	}
	checkError(t, walk(), "")
	if diff := cmp.Diff([]string{"pod=", "pod/c=v", "pod-2=" + long}, walked); diff != "" {
		t.Error(diff)
	}
	checkError(t, c.RemoveXattr(name), "")
	checkError(t, c.RemoveXattr(name), "")
	checkError(t, h.Cgroup("pod-2").RemoveXattr(name), "")
	walked = nil
	checkError(t, walk(), "")
	if diff := cmp.Diff([]string{"pod="}, walked); diff != "" {
		t.Error(diff)
	}
}

// TestReplaceXattr verifies that a new value is stored although the kernel cannot store it beside the old one, and that the old
// value is kept if the new one alone is too large.
func TestReplaceXattr(t *testing.T) {
	for name, tt := range map[string]struct {
		stored, value, want string
		room                int
		err                 error
	}{
		"room for both":      {"old", "new", "new", 6, nil},
		"room for one":       {"old", "newer", "newer", 5, nil},
		"too large":          {"old", "too large", "old", 5, unix.ENOSPC},
		"nothing stored yet": {"", "too large", "", 5, unix.ENOSPC},
	} {
		stored, isStored := []byte(tt.stored), tt.stored != ""
		err := replaceXattr([]byte(tt.value), xattrOf{
			get: func(buffer []byte) (int, error) {
				if !isStored {
					return 0, unix.ENODATA
				}
				return copy(buffer, stored), nil
			},
			set: func(value []byte) error {
				if len(stored)+len(value) > tt.room {
					return unix.ENOSPC
				}
				stored, isStored = slices.Clone(value), true
				return nil
			},
			remove: func() error { stored, isStored = nil, false; return nil },
		})
		if string(stored) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v, want %q, %v", name, stored, err, tt.want, tt.err)
		}
	}
}
