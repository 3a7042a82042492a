package calibrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Dir is an open directory on the disk, for the file that is written. It stays the same directory if its path
// leads elsewhere later.
type Dir struct {
	file *os.File
	name string // as the user named it
}

// OpenDir opens a directory of the node, whose root filesystem is mounted at root. It returns an
// error unless all that is written there is written to the disk, and to no other one.
func (n *Node) OpenDir(ctx context.Context, root, name string, disk blkio.Disk) (*Dir, error) {
	if err := n.checkDir(ctx, name, name, disk); err != nil { // before: to open one of a network filesystem can hang
		return nil, err
	}
	d, place, err := openDir(root, name)
	if err != nil {
		return nil, err
	}
	// A link in the path may have led elsewhere before OpenDir. So the mount table is refreshed now.
	err = n.Storage.Refresh(ctx)
	if err == nil {
		err = n.checkDir(ctx, name, place, disk)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.file.Close() }

// openDir opens a directory, with symlinks as the node resolves them. It also returns the path of
// the node that the open directory has, without symlinks.
func openDir(root, name string) (_ *Dir, place string, err error) {
	base, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	defer base.Close()
	var fd int
	for range 1000 { // EAGAIN: something on the node was renamed or mounted while a ".." was resolved, openat2(2)
		fd, err = unix.Openat2(int(base.Fd()), name, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	d := &Dir{file: os.NewFile(uintptr(fd), name), name: name}
	if place, err = placeBelow(base, d.file); err != nil {
		d.Close()
		return nil, "", fmt.Errorf("open %s: %w", name, err)
	}
	return d, place, nil
}

func placeBelow(base, dir *os.File) (string, error) {
	var paths [2]string
	for i, f := range []*os.File{base, dir} {
		var err error
		if paths[i], err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil {
			return "", err
		}
	}
	rest, ok := strings.CutPrefix(paths[1]+"/", strings.TrimSuffix(paths[0], "/")+"/")
	if !ok {
		return "", fmt.Errorf("it was moved to %s", paths[1])
	}
	return filepath.Join("/", rest), nil
}

// checkDir returns an error unless all writes in a directory of the node go to the disk, and to no other one.
// name is the directory's name in the error.
func (n *Node) checkDir(ctx context.Context, name, dir string, disk blkio.Disk) error {
	b := n.Storage.Resolve(ctx, dir)
	if len(b.Disks) == 0 {
		return fmt.Errorf("%s is not on disk %s: %s", name, disk.Name, b.Reason)
	}
	var names []string
	isOther := false
	for _, d := range b.Disks {
		below, err := n.Storage.Physical(d.Dev)
		if err != nil {
			return err
		}
		for _, p := range below {
			names = append(names, p.Name)
			isOther = isOther || p.Dev != disk.Dev
		}
	}
	if isOther {
		return fmt.Errorf("%s is on %s, not on disk %s alone", name, strings.Join(names, " and "), disk.Name)
	}
	return nil
}

const (
	// mostFile and leastFile bound the file that is written. It takes a quarter of the free space
	// at most.
	mostFile  = 1 << 30
	leastFile = 64 << 20
	// leastPrepared is the part of it that has to be written in prepareTime.
	leastPrepared = 4 << 20
	prepareTime   = 5 * time.Second
	prepareBlock  = 1 << 20
)

// scratchFile is a file without a name. The kernel removes it as soon as this process ends.
type scratchFile struct {
	*os.File
	size int64 // of its start, which has been written
}

// createFile creates a file of at most a size in a directory, and writes it once, so that later
// writes neither allocate space nor convert extents.
func createFile(ctx context.Context, dir *Dir, most int64) (*scratchFile, error) {
	size, err := dir.fileSize()
	if err != nil {
		return nil, fmt.Errorf("create a file in %s: %w", dir.name, err)
	}
	f, err := dir.openFile()
	if err != nil {
		return nil, fmt.Errorf("create a file in %s: %w", dir.name, explain(err))
	}
	s := &scratchFile{File: f}
	if err := s.prepare(ctx, min(size, most)); err != nil {
		f.Close() // this also removes the file
		return nil, fmt.Errorf("write a file in %s: %w", dir.name, explain(err))
	}
	return s, nil
}

func (d *Dir) fileSize() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.file.Fd()), &st); err != nil {
		return 0, err
	}
	return sizeWith(st.Bavail * uint64(st.Bsize))
}

func sizeWith(free uint64) (int64, error) {
	const part = 4
	if free/part < leastFile {
		return 0, fmt.Errorf("only %d MiB are free, %d MiB are needed", free>>20, part*leastFile>>20)
	}
	return int64(min(mostFile, free/part) / prepareBlock * prepareBlock), nil
}

// openFile opens a file without a name for direct I/O.
func (d *Dir) openFile() (*os.File, error) {
	fd, err := unix.Openat(int(d.file.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "file of the calibration"), nil
}

// prepare writes the file once, as far as that is possible in prepareTime.
func (s *scratchFile) prepare(ctx context.Context, size int64) error {
	fd := int(s.Fd())
	// btrfs then writes blocks where they are, as other filesystems do, which have no such flag.
	const noCopyOnWrite = 0x00800000 // FS_NOCOW_FL of linux/fs.h
	_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, noCopyOnWrite)
	if err := unix.Fallocate(fd, 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	block := newBlock(prepareBlock)
	for start := time.Now(); s.size < size && time.Since(start) < prepareTime; s.size += prepareBlock {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		binary.LittleEndian.PutUint64(block, uint64(s.size))
		if _, err := s.WriteAt(block, s.size); err != nil {
			return err
		}
	}
	if s.size < leastPrepared {
		return fmt.Errorf("only %d MiB were written in %v", s.size>>20, prepareTime)
	}
	return s.Truncate(s.size)
}

func explain(err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: name a directory that can be written", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: name a directory with more free space", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: its filesystem has no direct I/O", err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR):
		return fmt.Errorf("%w: its filesystem has no files without a name (O_TMPFILE)", err)
	}
	return err
}
