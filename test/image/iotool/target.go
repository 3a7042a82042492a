package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// target is a file or a disk whose blocks are read or written.
type target interface {
	step(offset int64) error // moves one block
	sync() error
	close()
}

// file is one file, by system calls.
type file struct {
	*os.File
	j     *job
	block []byte
}

func openFile(j *job, block []byte) (*file, error) {
	flags := os.O_RDONLY
	if j.command == "write" {
		flags = os.O_WRONLY | os.O_CREATE
	}
	if j.direct {
		flags |= syscall.O_DIRECT
	}
	if j.append {
		flags |= os.O_APPEND
	}
	f, err := os.OpenFile(j.path, flags, 0o644)
	return &file{f, j, block}, err
}

func (f *file) step(offset int64) error {
	switch {
	case f.j.append:
		_, err := f.Write(f.block)
		return err
	case f.j.command == "write":
		_, err := f.WriteAt(f.block, offset)
		return err
	}
	if offset == 0 && !f.j.direct {
		// Each pass over the file must come from the disk again.
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return fmt.Errorf("drop the cache of %s: %w", f.Name(), err)
		}
	}
	n, err := f.ReadAt(f.block, offset)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %d bytes at %d, want a file of at least --span bytes", f.j.path, n, offset)
	}
	return err
}

func (f *file) sync() error { return f.Sync() }

func (f *file) close() { f.Close() }

// mapping is a file by a shared mapping of it.
type mapping struct {
	memory, block []byte
}

func openMapping(j *job, block []byte) (*mapping, error) {
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < j.span {
		if err := errors.Join(err, f.Truncate(j.span)); err != nil {
			return nil, err
		}
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, int(j.span), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", j.path, err)
	}
	return &mapping{memory, block}, nil
}

func (m *mapping) step(offset int64) error {
	copy(m.memory[offset:], m.block)
	return nil
}

func (m *mapping) sync() error { return unix.Msync(m.memory, unix.MS_SYNC) }

func (m *mapping) close() { _ = unix.Munmap(m.memory) }

// dir is a directory of small files, written over one after another.
type dir struct {
	j     *job
	block []byte
	fd    int
}

func openDir(j *job, block []byte) (*dir, error) {
	if err := os.MkdirAll(j.path, 0o755); err != nil {
		return nil, err
	}
	fd, err := unix.Open(j.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.path, err)
	}
	return &dir{j, block, fd}, nil
}

func (d *dir) step(offset int64) error {
	name := strconv.FormatInt(offset/d.j.block%d.j.files, 10)
	f, err := os.OpenFile(filepath.Join(d.j.path, name), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(d.block, 0)
	return err
}

// sync writes the whole filesystem out, which for many files is the usual way.
func (d *dir) sync() error { return unix.Syncfs(d.fd) }

func (d *dir) close() { unix.Close(d.fd) }

// lines is standard output, a line for each block.
type lines struct{ line []byte }

func newLines(block []byte) lines {
	for i := range block {
		block[i] = 'x'
	}
	block[len(block)-1] = '\n'
	return lines{block}
}

func (l lines) step(int64) error {
	_, err := os.Stdout.Write(l.line)
	return err
}

func (lines) sync() error { return nil }

func (lines) close() {}

// alignedBlock is memory that O_DIRECT takes: whole pages, and not zeroes, which
// a disk could leave out.
func alignedBlock(size int) ([]byte, error) {
	block, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map a block of %d bytes: %w", size, err)
	}
	for i := range block {
		block[i] = byte(i%251 + 1)
	}
	return block, nil
}
