package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoFile says that an inode is none any more, or none whose writeback can be
// moved: its number was given to another, or it is no regular file.
var ErrNoFile = errors.New("no such file")

// Open opens an inode for [WriteOut] and [Drop]: for reading, whatever its
// permissions are, and unlinked ones too. root is any directory of the filesystem,
// fstype its type as in mountinfo. It takes CAP_DAC_READ_SEARCH.
//
// An open file keeps its filesystem from being unmounted, so hold it shortly.
func Open(root *os.File, fstype string, in Inode) (*os.File, error) {
	handle := in.handle(fstype)
	// Not to read yet: that would make a device or a pipe act.
	fd, err := openByHandle(root, handle, unix.O_PATH)
	if err != nil {
		return nil, in.openError(err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	unix.Close(fd)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = ErrNoFile
	}
	if err != nil {
		return nil, in.openError(err)
	}
	fd, err = openByHandle(root, handle, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, in.openError(err)
	}
	return os.NewFile(uintptr(fd), in.String()), nil
}

// String names an inode in errors, "inode 12 of 8:16".
func (in Inode) String() string {
	if in.Root != 0 {
		return fmt.Sprintf("inode %d of subvolume %d of %s", in.Number, in.Root, in.Dev)
	}
	return fmt.Sprintf("inode %d of %s", in.Number, in.Dev)
}

func (in Inode) openError(err error) error {
	if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOENT) {
		err = ErrNoFile
	}
	return fmt.Errorf("open %s: %w", in, err)
}

func openByHandle(root *os.File, handle unix.FileHandle, flags int) (fd int, err error) {
	conn, err := root.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := conn.Control(func(dir uintptr) {
		for {
			fd, err = unix.OpenByHandleAt(int(dir), handle, flags|unix.O_CLOEXEC)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return fd, errors.Join(controlErr, err)
}

// The types of handles.
const (
	handleIno32 = 1    // FILEID_INO32_GEN, of most
	handleXFS   = 0x81 // XFS_FILEID_INO64GEN
	handleBtrfs = 0x4d // FILEID_BTRFS_WITHOUT_PARENT
)

// handle is what the filesystem names the inode by.
//
// Source: include/linux/exportfs.h, fs/xfs/xfs_export.h, fs/btrfs/export.h.
func (in Inode) handle(fstype string) unix.FileHandle {
	order, data := binary.NativeEndian, []byte(nil)
	switch fstype {
	case "xfs":
		data = order.AppendUint64(data, in.Number)
		return unix.NewFileHandle(handleXFS, order.AppendUint32(data, in.Generation))
	case "btrfs":
		data = order.AppendUint64(data, in.Number)
		data = order.AppendUint64(data, in.Root)
		return unix.NewFileHandle(handleBtrfs, order.AppendUint32(data, in.Generation))
	}
	data = order.AppendUint32(data, uint32(in.Number))
	return unix.NewFileHandle(handleIno32, order.AppendUint32(data, in.Generation))
}

// WriteOut has the kernel begin to write out what is dirty in a part of a file. It
// does not wait for it. If anything is dirty it is a round of writeback, and so a
// vote of whom most of these pages are charged to.
func WriteOut(f *os.File, offset, length int64) error {
	return withFD(f, "write out", func(fd int) error {
		return unix.SyncFileRange(fd, offset, length, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// Drop has the kernel forget what is clean and not mapped of a part of a file: who
// writes it next is charged for it. What is dirty it begins to write out, as
// [WriteOut] does.
//
// Source: generic_fadvise in mm/fadvise.c.
func Drop(f *os.File, offset, length int64) error {
	return withFD(f, "drop the cache", func(fd int) error {
		return unix.Fadvise(fd, offset, length, unix.FADV_DONTNEED)
	})
}

// Cached is what the page cache has of a part of a file, in bytes.
type Cached struct {
	Dirty     uint64
	Writeback uint64 // on its way to the disk: who syncs waits for it
}

// ReadCached is ok false where the kernel does not tell: before Linux 6.5, where a
// filter of system calls forbids it, and, on kernels since 2025, without CAP_FOWNER.
//
// Source: cachestat(2), can_do_cachestat in mm/filemap.c.
func ReadCached(f *os.File, offset, length int64) (_ Cached, ok bool) {
	part, found := unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, unix.Cachestat_t{}
	err := withFD(f, "look at the cache", func(fd int) error {
		return unix.Cachestat(uint(fd), &part, &found, 0)
	})
	page := uint64(os.Getpagesize())
	return Cached{Dirty: found.Dirty * page, Writeback: found.Writeback * page}, err == nil
}

func withFD(f *os.File, op string, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := conn.Control(func(fd uintptr) {
		for {
			if err = fn(int(fd)); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if err := errors.Join(controlErr, err); err != nil {
		return fmt.Errorf("%s of %s: %w", op, f.Name(), err)
	}
	return nil
}
