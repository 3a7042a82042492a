package cgroupfs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// OpenCgroup keeps the files io.max and cgroup.events of a cgroup open. So its limits can be lifted in the 3 to
// 25 ms between the end of its last process and its removal. Afterwards the limits cannot be changed, and
// queued data is written at them.
type OpenCgroup struct {
	Cgroup
	events int
	ioMax  []int // its own first, then those of the cgroups right below
}

// hold opens the files of a cgroup and of its children.
func (c Cgroup) hold() (_ *OpenCgroup, err error) {
	events, err := c.h.open(c.path+"/cgroup.events", unix.O_RDONLY)
	if err != nil {
		return nil, c.fileError("open", "cgroup.events", "", err)
	}
	held := &OpenCgroup{Cgroup: c, events: events}
	children, err := c.Children()
	if err != nil {
		held.Close()
		return nil, err
	}
	// A container that may make cgroups could make any number of them.
	for _, cg := range append([]Cgroup{c}, children[:min(len(children), maxIDs-1)]...) {
		fd, err := cg.h.open(cg.path+"/io.max", unix.O_RDWR)
		switch {
		case err == nil:
			held.ioMax = append(held.ioMax, fd)
		case cg == c:
			held.Close()
			return nil, c.fileError("open", "io.max", "", err)
		}
	}
	return held, nil
}

// Close closes the files.
func (h *OpenCgroup) Close() {
	unix.Close(h.events)
	for _, fd := range h.ioMax {
		unix.Close(fd)
	}
}

// Lift writes lines to io.max of the cgroup and of its children. The error is ErrGone if
// the cgroup was removed before. Errors of the children are ignored.
func (h *OpenCgroup) Lift(lines []blkio.Line) error {
	var errs []error
	for _, l := range lines {
		text := l.Text
		for i, fd := range h.ioMax {
			_, err := ignoreEINTR(func() (int, error) { return unix.Pwrite(fd, []byte(text), 0) })
			// crun's own cgroup is removed together with its processes. The end of its
			// parent frees the I/O that is queued there.
			if err != nil && i == 0 {
				errs = append(errs, h.liftError(text, err))
			}
		}
	}
	return errors.Join(errs...)
}

// liftError distinguishes a cgroup that is being removed from a disk that was removed: both
// are ENODEV, and the directory goes after its files.
func (h *OpenCgroup) liftError(text string, err error) error {
	if _, readErr := unix.Pread(h.ioMax[0], make([]byte, 1), 0); errors.Is(readErr, unix.ENODEV) {
		err = fmt.Errorf("%w: %w", blkio.ErrGone, err)
		return &CgroupError{Op: "write", Name: "io.max", Data: text, Cgroup: h.path, Err: err}
	}
	return h.fileError("write", "io.max", text, err)
}

// populated reads cgroup.events, which also arms the next news of it.
func (h *OpenCgroup) populated() (bool, error) {
	buf := make([]byte, 256)
	n, err := ignoreEINTR(func() (int, error) { return unix.Pread(h.events, buf, 0) })
	if err != nil {
		return false, err
	}
	return strings.Contains(string(buf[:n]), "populated 1"), nil
}

// EmptyWatch reports cgroups that have become empty: neither they nor their descendants
// have a process. It is safe for concurrent use.
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "[Un]populated Notification".
type EmptyWatch struct {
	epoll int

	mu     sync.Mutex
	held   map[int32]*OpenCgroup // by the descriptor of cgroup.events
	path   map[string]int32
	closed bool // set by Close; the number of epoll may be another file's then
}

// errWatchClosed is returned by Add after Close.
var errWatchClosed = errors.New("watch cgroups: the watch is closed")

// NewEmptyWatch returns a watch of no cgroups.
func NewEmptyWatch() (*EmptyWatch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	return &EmptyWatch{epoll: fd, held: map[int32]*OpenCgroup{}, path: map[string]int32{}}, nil
}

// Add watches a cgroup until it is empty. A cgroup that is empty already is reported at
// once. Adding a watched cgroup has no effect.
func (w *EmptyWatch) Add(c Cgroup) error {
	if w.watches(c) {
		return nil
	}
	held, err := c.hold() // Run must not wait for that
	if err != nil {
		return err
	}
	added, err := w.arm(held)
	if !added {
		held.Close()
	}
	return err
}

func (w *EmptyWatch) watches(c Cgroup) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.path[c.path]
	return ok
}

// arm adds an open cgroup. It returns false after an error, or if another call has added
// it.
func (w *EmptyWatch) arm(held *OpenCgroup) (added bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.path[held.path]; ok {
		return false, nil
	}
	if w.closed {
		return false, errWatchClosed
	}
	fd := int32(held.events)
	// A file that was not read yet counts as changed, so a cgroup that is empty already
	// is reported.
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: fd}); err != nil {
		return false, fmt.Errorf("watch cgroup %s: %w", held.path, err)
	}
	w.held[fd], w.path[held.path] = held, fd
	return true, nil
}

// Close stops watching all cgroups. The caller waits for Run to return first.
func (w *EmptyWatch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	for _, held := range w.held {
		held.Close()
	}
	clear(w.held)
	clear(w.path)
	return unix.Close(w.epoll)
}

// Len returns the number of watched cgroups.
func (w *EmptyWatch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// Run calls empty for each watched cgroup that has become empty or was removed, until ctx
// ends. The function empty closes the OpenCgroup. systemd removes the cgroup of an ended
// container about 4 ms after the end, so Run makes its thread a real-time one, which
// requires CAP_SYS_NICE. It passes the result of that to urgent.
func (w *EmptyWatch) Run(ctx context.Context, urgent func(error), empty func(*OpenCgroup)) error {
	runtime.LockOSThread() // and no unlock: the thread ends with its goroutine
	urgent(beUrgent())
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch cgroups: %w", err)
	}
	defer unix.Close(wake)
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)}); err != nil {
		return fmt.Errorf("watch cgroups: %w", err)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_, _ = unix.Write(wake, []byte{1, 1, 1, 1, 1, 1, 1, 1}) // it cannot fail
	})
	defer func() {
		if !stop() {
			<-stopped
		}
	}()
	events := make([]unix.EpollEvent, 64)
	for ctx.Err() == nil {
		n, err := ignoreEINTR(func() (int, error) { return unix.EpollWait(w.epoll, events, -1) })
		if err != nil {
			return fmt.Errorf("watch cgroups: %w", err)
		}
		for _, e := range events[:n] {
			w.onEvent(e.Fd, empty)
		}
	}
	return ctx.Err()
}

func (w *EmptyWatch) onEvent(fd int32, empty func(*OpenCgroup)) {
	held := w.find(fd)
	if held == nil {
		return // the end of ctx
	}
	if populated, err := held.populated(); err == nil && populated {
		return
	}
	w.disarm(held)
	empty(held)
}

func (w *EmptyWatch) find(fd int32) *OpenCgroup {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[fd]
}

func (w *EmptyWatch) disarm(held *OpenCgroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, int32(held.events))
	delete(w.path, held.path)
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, held.events, nil) // it is there
}

// beUrgent makes the calling thread a real-time one. Threads and processes that it starts
// are not real-time.
func beUrgent() error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}
