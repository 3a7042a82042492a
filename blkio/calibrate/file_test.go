package calibrate

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestWritesFile verifies that the file has no name, is written once, and takes direct writes. On a filesystem
// without direct I/O the error names the cause.
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

// TestPrepares verifies that the file is written as a whole, each block with other bytes, and that an unwritten
// part is cut off. It is in memory, so this needs no direct I/O.
func TestPrepares(t *testing.T) {
	f := inMemory(t, 0)
	if err := f.Truncate(9 * mib); err != nil { // as if only a part could be written in time
		t.Fatal(err)
	}
	if err := f.prepare(t.Context(), 5*mib); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 9*mib)
	if n, _ := f.ReadAt(data, 0); n != 5*mib || f.size != 5*mib {
		t.Fatalf("%d bytes, %d counted", n, f.size)
	}
	seen := map[string]int{}
	for i := 0; i < 5*mib; i += mib {
		block := string(data[i : i+mib])
		if at, isKnown := seen[block]; isKnown || isZero(data[i:i+mib]) {
			t.Errorf("the block at %d is that at %d, or has zeros only", i, at)
		}
		seen[block] = i
	}
}

func TestPrepareErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		size int64
		seal int
		want string
	}{
		"too small to measure": {t.Context(), 3 * mib, 0, "only 3 MiB were written in 5s"},
		"interrupted":          {ctx, 8 * mib, 0, "context canceled"},
		"no space":             {t.Context(), 8 * mib, unix.F_SEAL_GROW, "operation not permitted"},
		"no writes":            {t.Context(), 8 * mib, unix.F_SEAL_FUTURE_WRITE, "operation not permitted"},
	} {
		f := inMemory(t, tt.seal)
		if err := f.prepare(tt.ctx, tt.size); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if got := explain(unix.EINVAL); !errors.Is(got, unix.EINVAL) || got.Error() != "invalid argument: its filesystem has no direct I/O" {
		t.Error(got)
	}
}

// inMemory returns a file in memory with seals, which refuse some operations.
func inMemory(t *testing.T, seals int) *scratchFile {
	t.Helper()
	fd, err := unix.MemfdCreate("file", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "file")
	t.Cleanup(func() { f.Close() })
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return &scratchFile{File: f}
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
