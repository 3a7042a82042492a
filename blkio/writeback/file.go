package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoFile means that the inode was removed, that its number now belongs to another inode,
// or that it is not a regular file.
var ErrNoFile = errors.New("no such file")

// Mount is an open filesystem. It cannot be unmounted while the Mount or one of its files
// is open.
type Mount struct {
	dir          *os.File
	path, fstype string
}

// OpenMount opens a filesystem by the path of a directory in it. fstype is its type as in
// mountinfo.
func OpenMount(path, fstype string) (*Mount, error) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return &Mount{dir: dir, path: path, fstype: fstype}, nil
}

// Close closes the mount. Its files stay open.
func (m *Mount) Close() error { return m.dir.Close() }

// Open opens a regular file for reading, with any permissions, even if it is unlinked. It requires
// CAP_DAC_READ_SEARCH. The error is [ErrNoFile] if the inode was removed.
func (m *Mount) Open(in Inode) (*File, error) {
	handle := in.handle(m.fstype)
	// O_PATH first: opening a device or a pipe for reading has effects.
	fd, err := openByHandle(m.dir, handle, unix.O_PATH)
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
	fd, err = openByHandle(m.dir, handle, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, in.openError(err)
	}
	return &File{file: os.NewFile(uintptr(fd), in.String()), mount: m.path}, nil
}

// File is an open regular file.
type File struct {
	file  *os.File
	mount string // path of its mount
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Owner returns the file's writeback owner.
func (f *File) Owner(r *OwnerReader) (Owner, error) { return r.Owner(f.file) }

// Path returns the file's path below its mount. ok is false if the kernel does not know the
// path, for example because no process has opened the file by its name.
func (f *File) Path() (_ string, ok bool) {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.file.Fd())))
	if err != nil {
		return "", false
	}
	below, ok := strings.CutPrefix(name, strings.TrimSuffix(f.mount, "/")+"/")
	return below, ok && below != ""
}

// String formats the inode for errors, "inode 12 of 8:16".
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

// openByHandle opens an inode by its handle. ENOMEM seldom means a lack of memory: the kernel also answers it while
// a new file gets the number of a removed one, which takes microseconds, or as long as its disk needs.
//
// Source: I_CREATING in find_inode_fast and iget_locked of fs/inode.c, ext4_iget.
func openByHandle(root *os.File, handle unix.FileHandle, flags int) (fd int, err error) {
	for range 20 {
		err = control(root, func(dir int) (err error) {
			fd, err = unix.OpenByHandleAt(dir, handle, flags|unix.O_CLOEXEC)
			return err
		})
		if !errors.Is(err, unix.ENOMEM) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fd, err
}

// The types of handles.
const (
	handleIno32 = 1    // FILEID_INO32_GEN, of most
	handleXFS   = 0x81 // XFS_FILEID_INO64GEN
	handleBtrfs = 0x4d // FILEID_BTRFS_WITHOUT_PARENT
)

// handle returns the file handle by which the filesystem names the inode.
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

// WriteOut starts the writeback of a part of the file, in bytes, and does not wait for it.
// If a page there is dirty, this is one round of writeback: a vote for the cgroup that most
// of the dirty pages are charged to.
//
// Source: sync_file_range(2), wbc_detach_inode in fs/fs-writeback.c.
func (f *File) WriteOut(offset, length int64) error {
	return f.control("write out", func(fd int) error {
		return unix.SyncFileRange(fd, offset, length, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// Drop removes those pages of a part of the file from the page cache that are clean and not
// mapped. The next writer of these pages is charged for them. Drop starts the writeback of
// dirty pages, as [File.WriteOut] does.
//
// Source: generic_fadvise in mm/fadvise.c.
func (f *File) Drop(offset, length int64) error {
	return f.control("drop the cache", func(fd int) error {
		return unix.Fadvise(fd, offset, length, unix.FADV_DONTNEED)
	})
}

// Cached counts the pages of a part of a file in the page cache, in bytes.
type Cached struct {
	Dirty     uint64
	Writeback uint64 // under writeback; a sync waits for these
}

// Cached returns the state of a part of the file in the page cache. ok is false if the kernel does not report
// it. That is so before Linux 6.5, under a seccomp filter that forbids the call, and without CAP_FOWNER on
// kernels since 2025.
//
// Source: cachestat(2), can_do_cachestat in mm/filemap.c.
func (f *File) Cached(offset, length int64) (_ Cached, ok bool) {
	part, found := unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, unix.Cachestat_t{}
	err := f.control("read the cache", func(fd int) error {
		return unix.Cachestat(uint(fd), &part, &found, 0)
	})
	page := uint64(PageSize())
	return Cached{Dirty: found.Dirty * page, Writeback: found.Writeback * page}, err == nil
}

func (f *File) control(op string, fn func(fd int) error) error {
	if err := control(f.file, fn); err != nil {
		return fmt.Errorf("%s of %s: %w", op, f.file.Name(), err)
	}
	return nil
}

// control calls fn with the descriptor of a file, again while a signal interrupts it.
func control(f *os.File, fn func(fd int) error) error {
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
	return errors.Join(controlErr, err)
}

// PageSize returns the size of a page of memory in bytes.
func PageSize() int64 { return int64(os.Getpagesize()) }
