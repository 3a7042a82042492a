package calibrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// opened opens a directory of this machine.
func opened(t *testing.T, dir string) *Dir {
	t.Helper()
	d, place, err := openDir("/", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if place != dir {
		t.Logf("%s is %s", dir, place)
	}
	return d
}

// TestWritesFile: the file has no name, is written once, and takes direct writes. On a filesystem
// without direct I/O the error says so.
func TestWritesFile(t *testing.T) {
	dir := t.TempDir()
	f, err := createFile(t.Context(), opened(t, dir), 4*mib)
	if errors.Is(err, unix.EINVAL) {
		if !strings.Contains(err.Error(), "its filesystem has no direct I/O") {
			t.Error(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	info, err := f.Stat()
	if err != nil || f.size != 4*mib || info.Size() != f.size {
		t.Errorf("%d bytes, %v, %v", f.size, info, err)
	}
	if _, err := f.WriteAt(newBlock(4*kib), f.size-4*kib); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Nlink != 0 {
		t.Errorf("%d links, %v", st.Nlink, err)
	}
}

func TestCreateFileErrors(t *testing.T) {
	gone := t.TempDir() + "/gone"
	if _, _, err := openDir("/", gone); !errors.Is(err, os.ErrNotExist) || err.Error() != "open "+gone+": no such file or directory" {
		t.Error(err)
	}
	if _, _, err := openDir(gone, "/"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if f, err := createFile(ctx, opened(t, dir), 8*mib); !errors.Is(err, context.Canceled) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, %v", f, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	for err, want := range map[error]string{
		unix.EROFS:  "read-only file system: name a directory that can be written",
		unix.ENOSPC: "no space left on device: name a directory with more free space",
		unix.EDQUOT: "disk quota exceeded: name a directory with more free space",
		unix.EACCES: "permission denied",
	} {
		if got := explain(err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// TestOpensRemovedFile: where files without a name are not supported, none is left either.
func TestOpensRemovedFile(t *testing.T) {
	dir := t.TempDir()
	f, err := opened(t, dir).openRemoved()
	if err == nil {
		defer f.Close()
		if _, err := f.WriteAt(newBlock(4*kib), 0); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, unix.EINVAL) { // no direct I/O
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

// TestKeepsOtherFiles: a file or link that has the name already is of another program, and stays.
func TestKeepsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{"file": "data", "sub/x": ""})
	if err := os.Symlink("nowhere", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link", "sub"} {
		f, err := opened(t, dir).openAndRemove(name)
		if !errors.Is(err, unix.EEXIST) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
}

func TestFileSize(t *testing.T) {
	for free, want := range map[uint64]int64{
		256 * mib: 64 * mib, 256*mib + 5: 64 * mib, 1000 * mib: 250 * mib, 4 * gib: gib, 1 << 60: gib,
	} {
		if got, err := sizeWith(free); got != want || err != nil {
			t.Errorf("%d bytes free: %d, %v", free, got, err)
		}
	}
	if got, err := sizeWith(256*mib - 1); err == nil || err.Error() != "only 255 MiB are free, 256 MiB are needed" {
		t.Errorf("%d, %v", got, err)
	}
}

func TestBlock(t *testing.T) {
	a, b := newBlock(4*kib), newBlock(4*kib)
	if len(a) != 4*kib || string(a) == string(b) || isZero(a) || !isZero(make([]byte, mib)) {
		t.Error("blocks are not random")
	}
}
