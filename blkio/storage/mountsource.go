package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mountSource is a mountinfo file that reports when it has changed. Not safe for
// concurrent use.
type mountSource interface {
	changed() (bool, error) // since the last call, or since it was opened
	read() (mountChange, error)
	// recheck reads n mounts again, from the one with this index on, and reports
	// whether there are more. See mountLister.
	recheck(first, n int) (c mountChange, more bool, err error)
	// list has the table read with listmount(2) from now on. The error is the reason
	// why that does not work here.
	list() error
	// lost returns, once, the reason why it is the text again.
	lost() error
	Close() error
}

// mountChange is a mount table and how it differs from the last one.
type mountChange struct {
	table *MountTable
	// mounts are those that came, went or have changed; nil if that is not known.
	mounts []*Mount
	// reusesIDs is true for the text of mountinfo, in which a new mount can have the line of one that has gone, and its
	// device the number of another disk.
	reusesIDs bool
}

// openMountSource opens a mountinfo file of procfs, or a regular file, as
// tests and benchmarks have it.
func openMountSource(name string) (mountSource, error) {
	// This does not use package os: poll(2) consumes the news of a change, and the Go runtime polls files that
	// os opens.
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		unix.Close(fd) // the error that counts is the one before
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if st.Type == unix.PROC_SUPER_MAGIC {
		return &procMounts{fd: fd, name: name, reader: newMountReader()}, nil
	}
	if err := unix.Close(fd); err != nil {
		return nil, err
	}
	f := &fileMounts{name: name, reader: newMountReader()}
	_, err = f.changed()
	return f, err
}

// procMounts is a mountinfo file of procfs. After a change of the mount
// namespace, one poll on each descriptor returns POLLERR|POLLPRI.
//
// Source: proc_pid_mounts(5); mounts_poll in fs/proc_namespace.c.
type procMounts struct {
	fd     int
	name   string
	reader *mountReader
	lister *mountLister // nil: the text is read
	reason error        // see lost
}

func (p *procMounts) changed() (bool, error) {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLPRI}}
	n, err := retryEINTR(func() (int, error) { return unix.Poll(fds, 0) })
	if err != nil {
		return false, fmt.Errorf("poll %s: %w", p.name, err)
	}
	return n > 0, nil
}

func (p *procMounts) read() (mountChange, error) {
	if p.lister != nil {
		t, changed, err := p.lister.read()
		if err == nil {
			return mountChange{table: t, mounts: changed}, nil
		}
		p.lister, p.reason = nil, err
		t, err = p.text() // how it differs is unknown: the last text is older than the last list
		return mountChange{table: t}, err
	}
	return p.readText()
}

func (p *procMounts) readText() (mountChange, error) {
	if _, err := unix.Seek(p.fd, 0, io.SeekStart); err != nil {
		return mountChange{}, fmt.Errorf("seek %s: %w", p.name, err)
	}
	c, err := p.reader.read(fdReader(p.fd))
	if err != nil {
		return mountChange{}, fmt.Errorf("read %s: %w", p.name, err)
	}
	return c, nil
}

func (p *procMounts) text() (*MountTable, error) {
	c, err := p.readText()
	return c.table, err
}

func (p *procMounts) list() error {
	if p.lister != nil {
		return nil
	}
	l, err := newMountLister(p.name, p.text)
	if err == nil {
		p.lister, p.reader = l, newMountReader() // Its lines are not needed any more.
	}
	return err
}

func (p *procMounts) recheck(first, n int) (c mountChange, more bool, err error) {
	if p.lister == nil {
		return mountChange{}, false, nil
	}
	t, changed, err := p.lister.recheck(first, n)
	return mountChange{table: t, mounts: changed}, first+n < len(p.lister.known), err
}

func (p *procMounts) lost() error {
	err := p.reason
	p.reason = nil
	return err
}

func (p *procMounts) Close() error { return unix.Close(p.fd) }

type fdReader int

func (fd fdReader) Read(b []byte) (int, error) {
	n, err := retryEINTR(func() (int, error) { return unix.Read(int(fd), b) })
	if err != nil {
		return 0, err
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// fileMounts is a regular file, which has changed if its times, size or inode
// have.
type fileMounts struct {
	name   string
	last   os.FileInfo
	reader *mountReader
}

func (f *fileMounts) changed() (bool, error) {
	info, err := os.Stat(f.name)
	if err != nil {
		return false, err
	}
	same := f.last != nil && os.SameFile(info, f.last) &&
		info.Size() == f.last.Size() && info.ModTime().Equal(f.last.ModTime())
	f.last = info
	return !same, nil
}

func (f *fileMounts) read() (mountChange, error) {
	file, err := os.Open(f.name)
	if err != nil {
		return mountChange{}, err
	}
	defer file.Close()
	c, err := f.reader.read(file)
	if err != nil {
		return mountChange{}, fmt.Errorf("read %s: %w", f.name, err)
	}
	return c, nil
}

func (f *fileMounts) recheck(int, int) (c mountChange, more bool, err error) { return }

func (f *fileMounts) list() error { return fmt.Errorf("%s: %w", f.name, errors.ErrUnsupported) }

func (f *fileMounts) lost() error { return nil }

func (f *fileMounts) Close() error { return nil }

// waitChanges calls fn after each change of a mountinfo file until ctx ends or
// fn fails, and once at the beginning. It has a descriptor of its own.
func waitChanges(ctx context.Context, name string, fn func() error) error {
	src, err := openMountSource(name)
	if err != nil {
		return err
	}
	defer src.Close()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", name, err)
	}
	defer unix.Close(wake)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		// Eight bytes that are not zero in either byte order. It cannot fail.
		_, _ = unix.Write(wake, []byte{1, 1, 1, 1, 1, 1, 1, 1})
	})
	defer func() {
		if !stop() {
			<-stopped // before wake is closed, and its number another's
		}
	}()
	for ctx.Err() == nil {
		if err := fn(); err != nil {
			return err
		}
		if err := wait(src, wake); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return ctx.Err()
}

// wait blocks until src has changed or wake is written to.
func wait(src mountSource, wake int) error {
	proc, ok := src.(*procMounts)
	if !ok {
		return waitFile(src, wake)
	}
	fds := []unix.PollFd{{Fd: int32(proc.fd), Events: unix.POLLPRI}, {Fd: int32(wake), Events: unix.POLLIN}}
	_, err := retryEINTR(func() (int, error) { return unix.Poll(fds, -1) })
	return err
}

// waitFile reads a regular file ten times a second.
func waitFile(src mountSource, wake int) error {
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for {
		n, err := retryEINTR(func() (int, error) { return unix.Poll(fds, int((100 * time.Millisecond).Milliseconds())) })
		if n > 0 || err != nil {
			return err
		}
		if changed, err := src.changed(); changed || err != nil {
			return err
		}
	}
}
