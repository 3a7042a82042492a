package blkio

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Held is a cgroup whose io.max is open, so that its limits can be lifted
// between the end of its last process and its removal, some 20 ms. Afterwards
// nobody reaches them any more, and what was queued drains at their pace.
type Held struct {
	Cgroup
	events int
	ioMax  map[Cgroup]int // its own, and those of the cgroups right below
}

// hold opens a cgroup's files.
func (c Cgroup) hold() (_ *Held, err error) {
	events, err := c.h.open(c.path+"/cgroup.events", unix.O_RDONLY)
	if err != nil {
		return nil, c.fileError("open", "cgroup.events", "", err)
	}
	held := &Held{Cgroup: c, events: events, ioMax: map[Cgroup]int{}}
	children, err := c.Children()
	if err != nil {
		held.close()
		return nil, err
	}
	for _, cg := range append(children, c) {
		fd, err := cg.h.open(cg.path+"/io.max", unix.O_WRONLY)
		switch {
		case err == nil:
			held.ioMax[cg] = fd
		case cg == c:
			held.close()
			return nil, c.fileError("open", "io.max", "", err)
		}
	}
	return held, nil
}

func (h *Held) close() {
	unix.Close(h.events)
	for _, fd := range h.ioMax {
		unix.Close(fd)
	}
}

// Lift sets limits, in the cgroups below too. ErrGone is a race that was lost.
func (h *Held) Lift(lines []DevLimits) error {
	var errs []error
	for cg, fd := range h.ioMax {
		for _, l := range lines {
			_, err := ignoreEINTR(func() (int, error) { return unix.Pwrite(fd, []byte(l.String()), 0) })
			// crun's own cgroup goes together with its processes. Nothing
			// is queued under it that its parent's end does not free.
			if err != nil && cg == h.Cgroup {
				errs = append(errs, cg.fileError("write", "io.max", l.String(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// populated reads cgroup.events, which also arms the next news of it.
func (h *Held) populated() (bool, error) {
	buf := make([]byte, 256)
	n, err := ignoreEINTR(func() (int, error) { return unix.Pread(h.events, buf, 0) })
	if err != nil {
		return false, err
	}
	return strings.Contains(string(buf[:n]), "populated 1"), nil
}

// EmptyWatch tells when cgroups become empty. It is safe for concurrent use.
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "[Un]populated Notification".
type EmptyWatch struct {
	epoll int

	mu   sync.Mutex
	held map[int32]*Held // by the descriptor of cgroup.events
	path map[string]int32
}

// NewEmptyWatch returns a watch of nothing yet.
func NewEmptyWatch() (*EmptyWatch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	return &EmptyWatch{epoll: fd, held: map[int32]*Held{}, path: map[string]int32{}}, nil
}

// Add watches a cgroup until it is empty. To add it again is no error.
func (w *EmptyWatch) Add(c Cgroup) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.path[c.path]; ok {
		return nil
	}
	held, err := c.hold()
	if err != nil {
		return err
	}
	fd := int32(held.events)
	// A file that was not read yet counts as changed, so that one that is
	// empty already is told of, too.
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: fd}); err != nil {
		held.close()
		return fmt.Errorf("watch cgroup %s: %w", c.path, err)
	}
	w.held[fd], w.path[c.path] = held, fd
	return nil
}

// Len is how many cgroups are watched.
func (w *EmptyWatch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// Run calls empty for each cgroup that has become empty or has gone, until ctx
// ends. The Held is good until empty returns.
func (w *EmptyWatch) Run(ctx context.Context, empty func(*Held)) error {
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
			w.news(e.Fd, empty)
		}
	}
	return ctx.Err()
}

// news looks at one cgroup of which there is some.
func (w *EmptyWatch) news(fd int32, empty func(*Held)) {
	w.mu.Lock()
	held := w.held[fd]
	w.mu.Unlock()
	if held == nil {
		return // the end of ctx
	}
	if populated, err := held.populated(); err == nil && populated {
		return
	}
	empty(held)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, fd)
	delete(w.path, held.path)
	held.close() // which takes it off the epoll
}
