package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// mountSource is a mountinfo file that reports when it has changed: of procfs, or a regular one, as tests and
// benchmarks have it. Not safe for concurrent use.
//
// After a change of the mount namespace, one poll on each descriptor of procfs returns POLLERR|POLLPRI. A regular
// file has changed if its times, size or inode have.
//
// Source: proc_pid_mounts(5); mounts_poll in fs/proc_namespace.c.
type mountSource struct {
	name   string
	fd     int         // of a file of procfs
	isFile bool        // a regular one
	last   os.FileInfo // of a regular one
	reader *mountReader
}

// mountChange is a mount table and how it differs from the last one. A new mount can have the line of one that has gone, and its
// device the number of another disk.
type mountChange struct {
	table *MountTable
	// mounts are those that came, went or have changed; nil if that is not known.
	mounts []*Mount
}

func openMountSource(name string) (*mountSource, error) {
	// This does not use package os: poll(2) consumes the news of a change, and the Go runtime polls files that
	// os opens.
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s := &mountSource{name: name, fd: fd, reader: newMountReader()}
	var st unix.Statfs_t
	if err = unix.Fstatfs(fd, &st); err == nil && st.Type != unix.PROC_SUPER_MAGIC {
		s.isFile = true
		_, err = s.changed()
	}
	if err != nil {
		s.Close() // the error that counts is the one before
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return s, nil
}

// changed reports whether the file has changed since the last call, or since it was opened.
func (s *mountSource) changed() (bool, error) {
	if s.isFile {
		info, err := os.Stat(s.name)
		if err != nil {
			return false, err
		}
		same := s.last != nil && os.SameFile(info, s.last) && info.Size() == s.last.Size() && info.ModTime().Equal(s.last.ModTime())
		s.last = info
		return !same, nil
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLPRI}}
	n, err := retryEINTR(func() (int, error) { return unix.Poll(fds, 0) })
	if err != nil {
		return false, fmt.Errorf("poll %s: %w", s.name, err)
	}
	return n > 0, nil
}

func (s *mountSource) read() (mountChange, error) {
	file, err := os.Open(s.name)
	if err != nil {
		return mountChange{}, err
	}
	defer file.Close()
	c, err := s.reader.read(file)
	if err != nil {
		return mountChange{}, fmt.Errorf("read %s: %w", s.name, err)
	}
	return c, nil
}

func (s *mountSource) Close() error { return unix.Close(s.fd) }

// waitChanges calls fn after each change of a mountinfo file until ctx ends or
// fn fails, and once at the beginning. It has a descriptor of its own.
func waitChanges(ctx context.Context, name string, fn func() error) error {
	src, err := openMountSource(name)
	if err != nil {
		return err
	}
	defer src.Close()
	for ctx.Err() == nil {
		if err := fn(); err != nil {
			return err
		}
		if err := src.wait(ctx); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return ctx.Err()
}

// wait blocks until the file has changed, or ctx has ended for at most a second. It reads a regular file ten times a second.
func (s *mountSource) wait(ctx context.Context) error {
	fds, pause := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLPRI}}, time.Second
	if s.isFile {
		fds, pause = nil, 100*time.Millisecond
	}
	for ctx.Err() == nil {
		n, err := retryEINTR(func() (int, error) { return unix.Poll(fds, int(pause.Milliseconds())) })
		if n > 0 || err != nil {
			return err
		}
		if changed, err := s.changed(); changed || err != nil {
			return err
		}
	}
	return nil
}

// mountReader reads the mount table repeatedly. It parses only lines that the last table
// did not have, and takes the other mounts from that table. To parse all lines of 5,000
// mounts takes 10 ms and makes 6 MB of garbage, while a handler may be waiting. Its memory
// grows with the number of lines, and not with their lengths.
type mountReader struct {
	seed  maphash.Seed
	lines map[uint64]line // by their hashes
	reads int
	table *MountTable // of the last reading, to make the next one of
	in    lineReader  // keeps its buffers
}

// line is one that was there at a reading; its Mount is nil if it has none.
type line struct {
	*Mount
	read int // the last one
}

func newMountReader() *mountReader {
	return &mountReader{
		seed: maphash.MakeSeed(), lines: make(map[uint64]line), table: newMountTable(nil),
		in: lineReader{src: bufio.NewReaderSize(nil, 32<<10)},
	}
}

// read returns the table, and the mounts that came and went since the last reading. They are not known at the first one.
func (r *mountReader) read(src io.Reader) (mountChange, error) {
	r.in.src.Reset(src)
	r.reads++
	var mounts, added []*Mount
	names := make(mountNames)
	for {
		err := r.in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			*r = *newMountReader() // A part of the lines has been taken in.
			return mountChange{}, fmt.Errorf("read mountinfo: %w", err)
		}
		h := maphash.Bytes(r.seed, r.in.line.text) + uint64(r.in.line.cut)
		l, isKnown := r.lines[h]
		if l.read == r.reads {
			continue // The same line twice.
		}
		if !isKnown {
			l.Mount = r.in.line.parseMount(names)
		}
		r.lines[h] = line{l.Mount, r.reads}
		if l.Mount == nil {
			continue
		}
		mounts = append(mounts, l.Mount)
		if !isKnown {
			added = append(added, l.Mount)
		}
	}
	gone := r.forget()
	r.table = r.table.next(mounts, added, gone)
	if r.reads == 1 {
		return mountChange{table: r.table}, nil
	}
	changed := slices.AppendSeq(make([]*Mount, 0, len(added)+len(gone)), maps.Keys(gone))
	return mountChange{table: r.table, mounts: append(changed, added...)}, nil
}

// forget drops the lines that were not read the last time, and returns their mounts.
func (r *mountReader) forget() map[*Mount]bool {
	gone := make(map[*Mount]bool)
	maps.DeleteFunc(r.lines, func(_ uint64, l line) bool {
		if l.read == r.reads {
			return false
		}
		if l.Mount != nil {
			gone[l.Mount] = true
		}
		return true
	})
	return gone
}
