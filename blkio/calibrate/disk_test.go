package calibrate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// TestLoopOnNoDisk verifies that, for a loop device whose file is on tmpfs, Find fails and names no disk to
// calibrate.
func TestLoopOnNoDisk(t *testing.T) {
	n, sys := nodeWith(t, nil)
	sys.add("loop1", "7:1", "size=41943040", "mq/0/cpu_list=0", "loop/backing_file=/srv/mem/x")
	const want = "loop1 is a loop device, and its file is not on a known disk"
	if d, err := Find(t.Context(), n.Storage, n.Sysfs, "loop1"); err == nil || err.Error() != want {
		t.Errorf("Find: disk %+v, error %v, want the error %q", d, err, want)
	}
}

// TestFindErrors covers names that belong to no disk, and a sysfs that cannot be read.
func TestFindErrors(t *testing.T) {
	n, sys := nodeWith(t, nil)
	sys.add("md0/md0p1", "259:1", "size=41943040", "partition=1")
	sys.link("class/block/md0p1", "../../devices/md0/md0p1")
	sys.add("nvme0c0n1", "", "size=41943040", "hidden=1")
	for name, want := range map[string]string{
		"":                     `find "": no such disk`,
		"/dev/":                `find "/dev/": no such disk`,
		"/srv/data/a.img":      `find "/srv/data/a.img": `, // the file of a loop device
		"/dev/disk/by-id/none": `find "/dev/disk/by-id/none": no such disk`,
		"254:16":               `find "254:16": no such disk`,
		"md0p1":                "md0p1 is a partition: calibrate its disk, vdb, vdc",
		"nvme0c0n1":            `find "nvme0c0n1": `,
	} {
		if d, err := Find(t.Context(), n.Storage, n.Sysfs, name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %s", name, d, err, want)
		}
	}
	// A member of the RAID has left while its link is still there.
	delete(sys.MapFS, "dev/block/254:32")
	if d, err := Find(t.Context(), n.Storage, n.Sysfs, "md0"); err == nil {
		t.Errorf("of a broken stack: %+v", d)
	}
	for name := range sys.MapFS {
		if strings.HasPrefix(name, "block/") {
			delete(sys.MapFS, name)
		}
	}
	if d, err := Find(t.Context(), n.Storage, n.Sysfs, "vdb"); err == nil || !strings.HasPrefix(err.Error(), "list disks: ") {
		t.Errorf("without a list of disks: %+v, %v", d, err)
	}
}

// TestOpensDevicesOnly verifies that the device file of the disk is opened, and nothing that is there instead.
func TestOpensDevicesOnly(t *testing.T) {
	dir := t.TempDir()
	link, file, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink("/dev/null", link), os.WriteFile(file, nil, 0o600), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // without one, to open it for reading blocks
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for name, wants := range map[string][]string{
		link:     {"too many levels of symbolic links"},
		file:     {"is not block device 254:16", "invalid argument"}, // the latter without direct I/O
		pipe:     {"is not block device 254:16", "invalid argument"},
		dir:      {"is not block device 254:16", "invalid argument"},
		"/dev/x": {"no such file or directory"},
	} {
		d, err := openDisk(t.Context(), name, vdb)
		if err == nil || !strings.HasPrefix(err.Error(), "open disk vdb: ") || !strings.HasSuffix(err.Error(), wants[0]) && !strings.HasSuffix(err.Error(), wants[len(wants)-1]) {
			t.Errorf("%s: %+v, %v, want %s", name, d, err, wants)
		}
	}
}

// shortIO transfers a part of each block.
type shortIO struct{ calls atomic.Int64 }

func (s *shortIO) ReadAt(block []byte, _ int64) (int, error) {
	s.calls.Add(1)
	return len(block) / 2, io.EOF
}
func (s *shortIO) WriteAt([]byte, int64) (int, error) { s.calls.Add(1); return 0, unix.ENOSPC }

// TestCounts verifies that transferred bytes count, also those of operations that failed.
func TestCounts(t *testing.T) {
	c := &counter{disk: &shortIO{}, file: &shortIO{}}
	block := make([]byte, 4*kib)
	for range 3 {
		if n, err := c.ReadAt(block, 0); n != 2*kib || !errors.Is(err, io.EOF) {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := c.WriteAt(block, 0); n != 0 || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%d, %v", n, err)
		}
	}
	c.file = slowDisk()
	if n, err := c.WriteAt(block, 0); n != 4*kib || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if r, w := c.read.Load(), c.written.Load(); r != 6*kib || w != 4*kib {
		t.Errorf("%d bytes were read, %d written", r, w)
	}
}

// TestNoFile verifies that a calibration with writes fails as a whole if its file cannot be created.
func TestNoFile(t *testing.T) {
	n, _ := nodeWith(t, nil)
	cfg := config(n)
	cfg.WriteDir = opened(t, t.TempDir())
	if err := cfg.WriteDir.Close(); err != nil {
		t.Fatal(err)
	}
	d := slowDisk()
	m, _, err := cfg.measure(t.Context(), d)
	if m != nil || !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EBADF) || !strings.HasPrefix(err.Error(), "create a file in ") || d.operations > 0 {
		t.Errorf("%+v, %v, after %d operations", m, err, d.operations)
	}
	if _, err := run(t, &Config{Node: n, Disk: &storage.DiskInfo{Disk: vdb}, WriteDir: cfg.WriteDir, Progress: ignore}, d); err == nil || !strings.HasPrefix(err.Error(), "create a file in ") {
		t.Error(err)
	}
}
