package writeback

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// A file is known by its inode. The tests below write to one by more than one name.

// inodes returns the inodes that were written to since the last Read, with the bytes of each.
func inodes(t *testing.T, o *Observer) map[uint64]uint64 {
	t.Helper()
	found, _, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]uint64{}
	for _, d := range found {
		out[d.Number] += d.Bytes
	}
	return out
}

func number(t *testing.T, file string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestHardLink verifies that writes through several names of a file count for one file. After one name is
// removed, the file can still be opened by its device and inode numbers. Its path is then one of the remaining
// names, or unknown.
func TestHardLink(t *testing.T) {
	o, dir := testObserver(t)
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := errors.Join(os.WriteFile(first, make([]byte, 64<<10), 0o600), os.Link(first, second)); err != nil {
		t.Fatal(err)
	}
	if got := inodes(t, o)[number(t, first)]; got == 0 {
		t.Skip("files here are not on the filesystem that stat tells of")
	}
	for _, name := range []string{first, second} {
		administer(t, "sync", name) // so that its pages can become dirty again
		writePages(t, name, 4)
		if got := inodes(t, o)[number(t, first)]; got < 16<<10 {
			t.Errorf("%d bytes are counted that were written by %s", got, filepath.Base(name))
		}
	}
	fstype := typeOf(t, dir)
	if fstype == "" {
		t.Log("not tried: files here have no numbers that they can be opened by")
		return
	}
	mount, err := OpenMount(dir, fstype)
	if err != nil {
		t.Fatal(err)
	}
	defer mount.Close()
	in := inodeOf(t, second, fstype)
	for _, left := range []map[string]bool{{"first": true, "second": true}, {"second": true}} {
		f, err := mount.Open(in)
		if errors.Is(err, fs.ErrPermission) {
			t.Log("not tried: ", err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if below, ok := f.Path(); ok && !left[below] {
			t.Errorf("its path is %q, which is none of %v", below, left)
		}
		if err := errors.Join(f.WriteOut(0, 1<<20), f.Close()); err != nil {
			t.Error(err)
		}
		if err := os.Remove(first); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestCopyUp verifies that the copy which overlayfs makes of a file of a lower layer, before the first write to
// it, counts as written by the cgroup of the writing process, on the filesystem of the upper layer.
func TestCopyUp(t *testing.T) {
	o, dir := testObserver(t)
	const size = 1 << 20
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lower", "f"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(dir, "merged")
	err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work")
	if err != nil {
		t.Skip("mount an overlay: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	inodes(t, o)
	writer := runInCgroup(t, "copies", "sh", "-c", "echo x >>"+filepath.Join(merged, "f"))
	found, _, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "upper", "f"), &st); err != nil {
		t.Fatal(err)
	}
	by, all := map[uint64]uint64{}, uint64(0)
	for _, d := range found {
		if d.Number == st.Ino && d.Dev == (blkio.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}) {
			by[d.Writer] += d.Bytes
		}
		all += d.Bytes
	}
	if all == 0 {
		t.Skip("files here are not on the filesystem that stat tells of")
	}
	if by[writer] < size {
		t.Errorf("%d bytes are counted for the writer, of %d; by writer: %v", by[writer], size, by)
	}
}

func administer(t *testing.T, command ...string) {
	t.Helper()
	runInCgroup(t, "administers", command...)
}
