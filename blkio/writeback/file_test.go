package writeback

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// handleWords takes a handle apart as the kernel's structures do: numbers of 64 and 32 bits.
func handleWords(h unix.FileHandle, sizes ...int) (words []uint64) {
	data := h.Bytes()
	for _, size := range sizes {
		if len(data) < size {
			return nil
		}
		if size == 8 {
			words = append(words, binary.NativeEndian.Uint64(data))
		} else {
			words = append(words, uint64(binary.NativeEndian.Uint32(data)))
		}
		data = data[size:]
	}
	if len(data) > 0 {
		return nil
	}
	return words
}

// TestHandle verifies that handles have the layout that their filesystem decodes.
func TestHandle(t *testing.T) {
	in := Inode{Number: 0x1234, Generation: 7, Root: 256}
	for _, tt := range []struct {
		fstype string
		kind   int32
		sizes  []int
		want   []uint64
	}{
		{"ext4", 1, []int{4, 4}, []uint64{0x1234, 7}},             // struct fid.i32
		{"f2fs", 1, []int{4, 4}, []uint64{0x1234, 7}},             // the same
		{"xfs", 0x81, []int{8, 4}, []uint64{0x1234, 7}},           // struct xfs_fid64
		{"btrfs", 0x4d, []int{8, 8, 4}, []uint64{0x1234, 256, 7}}, // struct btrfs_fid
	} {
		h := in.handle(tt.fstype)
		if diff := cmp.Diff(tt.want, handleWords(h, tt.sizes...)); h.Type() != tt.kind || diff != "" {
			t.Errorf("%s: type %#x, (-want, +got):\n%s", tt.fstype, h.Type(), diff)
		}
	}
}

// typeOf returns the type of the filesystem of a directory, "" if its handles are not known here.
func typeOf(t *testing.T, dir string) string {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	}[st.Type]
}

// inodeOf returns the inode of a file in the observer's form, from the handle that the kernel makes.
func inodeOf(t *testing.T, file, fstype string) Inode {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, file, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := handleWords(h, 4, 4)
	if fstype == "xfs" {
		words = handleWords(h, 8, 4)
	}
	if words == nil {
		t.Fatalf("the handle of %s is %x", file, h.Bytes())
	}
	in := Inode{Number: words[0], Generation: uint32(words[1])}
	if ours := in.handle(fstype); ours.Type() != h.Type() || string(ours.Bytes()) != string(h.Bytes()) {
		t.Errorf("the handle is %x of type %#x, the kernel's is %x of %#x", ours.Bytes(), ours.Type(), h.Bytes(), h.Type())
	}
	return in
}

// TestOpen opens files by their numbers where the tests run on a filesystem that has some
// and as root; the node's tests do so on each.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
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
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte("x"), 0o000); err != nil {
		t.Fatal(err)
	}
	in := inodeOf(t, name, fstype)
	f, err := mount.Open(in)
	if errors.Is(err, fs.ErrPermission) {
		t.Log("not tried: ", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if below, ok := f.Path(); !ok || below != "f" {
		t.Errorf("its path is %q, %v", below, ok)
	}
	if err := errors.Join(f.WriteOut(0, 1<<20), f.Drop(0, 1<<20), f.Close(), os.Remove(name)); err != nil {
		t.Error(err)
	}
	stop := recreates(t, name)
	for range 2000 { // one of twenty opens met a new file, before they were tried again
		if f, err := mount.Open(in); !errors.Is(err, ErrNoFile) {
			t.Fatalf("removed, while new files get its number: %v, %v", f, err)
		}
	}
	stop()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, in := range map[string]Inode{
		"removed": in, "a directory": inodeOf(t, dir, fstype), "a FIFO": inodeOf(t, fifo, fstype),
		"of another generation": {Number: in.Number, Generation: in.Generation + 1},
	} {
		if f, err := mount.Open(in); !errors.Is(err, ErrNoFile) {
			t.Errorf("%s: %v, %v", what, f, err)
		}
	}
}

// recreates makes a file and removes it, again and again. ext4 gives each one the same number.
func recreates(t *testing.T, name string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var files sync.WaitGroup
	files.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Remove(name)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	stop = func() { cancel(); files.Wait() }
	t.Cleanup(stop)
	return stop
}

func TestOpenMountErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMount(file, "ext4"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
	if _, err := OpenMount(filepath.Join(dir, "none"), "ext4"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}

// TestOpenError verifies that a removed inode gives one error, on each filesystem.
func TestOpenError(t *testing.T) {
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 12}
	for _, tt := range []struct {
		in   Inode
		err  error
		is   error
		want string
	}{
		{in, unix.ESTALE, ErrNoFile, "open inode 12 of 8:16: no such file"},
		{in, unix.ENOENT, ErrNoFile, "open inode 12 of 8:16: no such file"},
		{in, unix.EPERM, fs.ErrPermission, "open inode 12 of 8:16: operation not permitted"},
		{
			Inode{Dev: in.Dev, Number: 12, Root: 256},
			unix.EIO, unix.EIO,
			"open inode 12 of subvolume 256 of 8:16: input/output error",
		},
	} {
		if err := tt.in.openError(tt.err); !errors.Is(err, tt.is) || err.Error() != tt.want {
			t.Errorf("%v: got %v, want %s", tt.err, err, tt.want)
		}
	}
}

// TestPath verifies that a path is one below the mount, and none of a mount whose name begins alike.
func TestPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "data", "sub", "f")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tt := range []struct {
		mount, want string
		ok          bool
	}{
		{filepath.Join(dir, "data"), "sub/f", true},
		{filepath.Join(dir, "data") + "/", "sub/f", true},
		{"/", strings.TrimPrefix(name, "/"), true},
		{filepath.Join(dir, "dat"), "", false},
		{filepath.Join(dir, "other"), "", false},
		{name, "", false},
	} {
		got, ok := (&File{file: f, mount: tt.mount}).Path()
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("below %s: got %q, %v, want %q, %v", tt.mount, got, ok, tt.want, tt.ok)
		}
	}
}

// TestFileErrors verifies that errors name the operation and the file.
func TestFileErrors(t *testing.T) {
	r, w, err := os.Pipe() // it has no page to write out or to drop
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pipe := &File{file: r}
	for op, err := range map[string]error{"write out of |0: ": pipe.WriteOut(0, 1), "drop the cache of |0: ": pipe.Drop(0, 1)} {
		if !errors.Is(err, unix.ESPIPE) || !strings.HasPrefix(err.Error(), op) {
			t.Errorf("%s %v", op, err)
		}
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pipe.WriteOut(0, 1); err == nil {
		t.Error("closed, and it is written out")
	}
	if _, ok := pipe.Cached(0, 1); ok {
		t.Error("closed, and it is cached")
	}
}

// TestControl verifies that a call that a signal interrupts is made again.
func TestControl(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls := 0
	err = (&File{file: f}).control("op", func(int) error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestPageOut pages out of this process, as far as it may: the kernel wants CAP_SYS_NICE
// even for that.
func TestPageOut(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := 4 * int(PageSize())
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	address := uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	maps := fmt.Sprintf("%x-%x r--s 00000000 08:10 1311 /f\n", address, address+uintptr(size))
	proc := t.TempDir()
	pid := os.Getpid()
	if err := os.Mkdir(filepath.Join(proc, strconv.Itoa(pid)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := PageOut(proc, pid, in, 0, int64(size), 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no list: %v", err)
	}
	if err := os.WriteFile(filepath.Join(proc, strconv.Itoa(pid), "maps"), []byte(maps), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := PageOut(proc, pid, in, 0, int64(size), 4096)
	if read != len(maps) || err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%d of %d bytes read, %v", read, len(maps), err)
	}
	if _, err := PageOut(proc, 1<<30, in, 0, 1, 4096); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("no process: %v", err)
	}
}

// TestThreadTime verifies that the time of a thread does not go back.
func TestThreadTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ThreadTime()
	if after := ThreadTime(); after < before || before <= 0 {
		t.Errorf("%v, then %v", before, after)
	}
}
