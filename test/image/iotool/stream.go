package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// report is the line that is printed: times in nanoseconds, the clock starting
// as the process does its first call.
type report struct {
	Bytes int64 `json:"bytes"`
	Calls int64 `json:"calls"`
	Nanos int64 `json:"nanos"`
	// FirstNanos is the duration of the first call: with a limit in force, no
	// less than its block at that rate.
	FirstNanos int64 `json:"firstNanos"`
	// IOStat is the container's own io.stat, "" where it cannot be read.
	IOStat string `json:"ioStat,omitempty"`
}

// stream moves bytes until the size is reached or the context ends.
func (j *job) stream(ctx context.Context) (report, error) {
	block, err := alignedBlock(int(j.block))
	if err != nil {
		return report{}, err
	}
	t, err := j.open(block)
	if err != nil {
		return report{}, err
	}
	defer t.close()
	var r report
	start := time.Now()
	for ctx.Err() == nil && r.Bytes < j.size {
		if err := t.step(r.Bytes % j.span); err != nil {
			return report{}, err
		}
		r.Bytes += j.block
		r.Calls++
		if j.sync > 0 && r.Bytes%j.sync == 0 {
			if err := t.sync(); err != nil {
				return report{}, err
			}
		}
		r.Nanos = time.Since(start).Nanoseconds()
		if r.Calls == 1 {
			r.FirstNanos = r.Nanos
		}
	}
	if j.fsync {
		if err := t.sync(); err != nil {
			return report{}, err
		}
		r.Nanos = time.Since(start).Nanoseconds()
	}
	return r, nil
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

// open chooses how the bytes are moved.
func (j *job) open(block []byte) (target, error) {
	switch {
	case j.command == "print":
		return newLines(block), nil
	case j.files > 0:
		return openDir(j, block)
	case j.mmap:
		return openMapping(j, block)
	}
	t, err := openFile(j, block)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.path, err)
	}
	return t, nil
}
