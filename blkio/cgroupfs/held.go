package cgroupfs

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// maxHeld bounds the files that a Hierarchy keeps open for ReadHeld. The kernel keeps a page of memory for each of them.
const maxHeld = 4096

// heldFiles has control files that are read again and again. To open and close one takes the kernel three times as long
// as to read it. A descriptor of a removed cgroup's file has no other effect than ENODEV, also if a cgroup of the same path
// is created afterwards.
//
// Source: kernfs_get_active in fs/kernfs/file.c.
type heldFiles struct {
	mu    sync.Mutex // guards files, and heldFile.isRead
	files map[heldKey]*heldFile
}

type heldKey struct{ cgroup, file string }

type heldFile struct {
	isRead bool // since the last CloseUnread

	mu sync.Mutex // guards fd: it is not closed during a read
	fd int        // -1 once it is closed
}

// ReadHeld is ReadText for a file that is read in each pass over the node. The file stays open until it is not read
// between two calls of CloseUnread, or its cgroup is removed. A text that is longer than buf is read
// as ReadText does.
func (c Cgroup) ReadHeld(file string, buf []byte) ([]byte, error) {
	key := heldKey{c.path, file}
	if f := c.h.held.find(key); f != nil {
		if text, err := f.read(buf, c.h.isKernel); err == nil {
			return text, nil
		}
		c.h.held.remove(key, f)
		f.close()
	}
	fd, err := c.h.open(c.path+"/"+file, unix.O_RDONLY)
	if err != nil {
		return nil, c.fileError("read", file, "", err)
	}
	f := &heldFile{fd: fd, isRead: true}
	text, err := f.read(buf, true)
	if err != nil || !c.h.held.keep(key, f) {
		f.close()
	}
	if errors.Is(err, errTooLong) {
		return c.ReadText(file, buf)
	}
	if err != nil {
		return nil, c.fileError("read", file, "", err)
	}
	return text, nil
}

// CloseUnread closes the files that ReadHeld has not read since the last call.
func (h *Hierarchy) CloseUnread() {
	for _, f := range h.held.takeUnread() {
		f.close()
	}
}

func (x *heldFiles) find(key heldKey) *heldFile {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.files[key]
	if f != nil {
		f.isRead = true
	}
	return f
}

// keep returns false if the limit of held files is reached, or the file is held already.
func (x *heldFiles) keep(key heldKey, f *heldFile) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.files == nil {
		x.files = map[heldKey]*heldFile{}
	}
	if x.files[key] != nil || len(x.files) >= mostHeld() {
		return false
	}
	x.files[key] = f
	return true
}

// mostHeld returns how many files may be held: at most a quarter of the descriptors that this process may have.
func mostHeld() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur/4, maxHeld))
}

func (x *heldFiles) remove(key heldKey, f *heldFile) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.files[key] == f {
		delete(x.files, key)
	}
}

func (x *heldFiles) takeUnread() (out []*heldFile) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, f := range x.files {
		if !f.isRead {
			delete(x.files, key)
			out = append(out, f)
		}
		f.isRead = false
	}
	return out
}

// errTooLong is the error of a text that does not fit into a buffer.
var errTooLong = errors.New("the text is longer than expected")

// read reads the file from its beginning. The kernel makes the text anew. A file that is not the kernel's own stays
// readable after its removal.
func (f *heldFile) read(buf []byte, isKernel bool) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return nil, blkio.ErrGone // another goroutine has found that
	}
	for {
		switch n, err := unix.Pread(f.fd, buf[:cap(buf)], 0); {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == cap(buf):
			return nil, errTooLong
		case !isKernel && f.isRemoved():
			return nil, blkio.ErrGone
		default:
			return buf[:n], nil
		}
	}
}

func (f *heldFile) isRemoved() bool {
	var st unix.Stat_t
	return unix.Fstat(f.fd, &st) != nil || st.Nlink == 0
}

func (f *heldFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}
