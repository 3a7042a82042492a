package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// report is the line that is printed: times in nanoseconds, the clock starting
// as the process does its first call.
type report struct {
	Bytes int64 `json:"bytes"`
	Calls int64 `json:"calls"`
	Nanos int64 `json:"nanos"`
	// FirstNanos is what the first call took: with a limit in force, no
	// less than its block at that rate.
	FirstNanos int64 `json:"firstNanos"`
	// IOStat is the container's own io.stat, "" where it cannot be read.
	IOStat string `json:"ioStat,omitempty"`
}

// stream moves bytes until the size is reached or the context ends.
func (j job) stream(ctx context.Context) (report, error) {
	flags := os.O_RDONLY
	if j.command == "write" {
		flags = os.O_WRONLY | os.O_CREATE
	}
	if j.direct {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(j.path, flags, 0o644)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	block, err := alignedBlock(int(j.block))
	if err != nil {
		return report{}, err
	}
	var r report
	start := time.Now()
	for ctx.Err() == nil && r.Bytes < j.size {
		if err := j.step(f, block, r.Bytes%j.span); err != nil {
			return report{}, err
		}
		r.Bytes += j.block
		r.Calls++
		r.Nanos = time.Since(start).Nanoseconds()
		if r.Calls == 1 {
			r.FirstNanos = r.Nanos
		}
	}
	if j.fsync {
		if err := f.Sync(); err != nil {
			return report{}, err
		}
		r.Nanos = time.Since(start).Nanoseconds()
	}
	return r, nil
}

// step reads or writes one block at the offset.
func (j job) step(f *os.File, block []byte, offset int64) error {
	if j.command == "write" {
		_, err := f.WriteAt(block, offset)
		return err
	}
	if offset == 0 && !j.direct {
		// Each pass over the file must come from the disk again.
		if err := dropCache(f); err != nil {
			return err
		}
	}
	n, err := f.ReadAt(block, offset)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %d bytes at %d, want a file of at least --span bytes", j.path, n, offset)
	}
	return err
}

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

// dropCache forgets the file's clean pages.
func dropCache(f *os.File) error {
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
	if errno != 0 {
		return fmt.Errorf("drop the cache of %s: %w", f.Name(), errno)
	}
	return nil
}

// ownIOStat reads the io.stat of the container's own cgroup, which is the root
// of its cgroup namespace.
func ownIOStat() string {
	data, err := os.ReadFile("/sys/fs/cgroup/io.stat")
	if err != nil {
		return "" // a container need not have cgroupfs
	}
	return strings.TrimSpace(string(data))
}
