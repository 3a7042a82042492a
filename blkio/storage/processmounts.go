package storage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// ErrNoProcess means that the process has ended. Another process may have its PID.
var ErrNoProcess = errors.New("no such process")

// ProcessMounts returns the mounts of a process that may be stored on disks, in the order
// of the kernel. The mount of the root directory is among them, without a Backing. The
// error is ErrNoProcess if the process is not in the cgroup or below it, because its PID
// may have been used again. ProcessMounts stops when ctx ends.
//
// It reads mountinfo, which requires no permission to trace the process. The first process
// of a container is not dumpable before it runs the container's program. So without
// CAP_SYS_PTRACE the links in its directory of procfs cannot be followed.
//
// Source: mounts_open_common in fs/proc_namespace.c; docs/reference/quirks.md.
func (s *Storage) ProcessMounts(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error) {
	// The directory stays that of the process: once it has ended, files in it cannot be opened.
	dir, err := os.OpenRoot(filepath.Join(s.cfg.Proc, strconv.Itoa(pid)))
	if err != nil {
		return nil, processError(err)
	}
	defer dir.Close()
	text, err := dir.ReadFile("cgroup")
	if err != nil {
		return nil, processError(err)
	}
	if !isInCgroup(string(text), path.Base(cgroup)) {
		return nil, fmt.Errorf("%w: process %d is not in the cgroup", ErrNoProcess, pid)
	}
	f, err := dir.Open("mountinfo")
	if err != nil {
		return nil, processError(err)
	}
	defer f.Close()
	found, err := readProcessMounts(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the mounts of process %d: %w", pid, processError(err))
	}
	return s.current.Load().backProcess(ctx, found), nil
}

// processError makes an error for a process that has ended ErrNoProcess. mountinfo of a
// process that has left its namespaces is EINVAL.
func processError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNoProcess, err)
	}
	return err
}

// isInCgroup reports whether /proc/PID/cgroup names a cgroup of version 2 on whose path
// is one of this name. The path is relative to the reader's cgroup namespace, so it
// cannot be compared as a whole:
//
//	0::/../../kubepods-pod1.slice/cri-containerd-5e0f.scope
func isInCgroup(text, name string) bool {
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return strings.Contains(p+"/", "/"+name+"/")
		}
	}
	return false
}

// processMount is a mount of a process whose backing is not resolved yet.
type processMount struct {
	*Mount
	isReadOnly, isRoot bool
}

// readProcessMounts parses a mountinfo file, without the mounts that cannot be stored
// on a disk.
func readProcessMounts(ctx context.Context, src io.Reader) ([]processMount, error) {
	in := lineReader{src: bufio.NewReaderSize(src, 32<<10)}
	names := make(mountNames)
	var out []processMount
	var roots []*Mount
	for {
		switch err := in.next(); {
		case errors.Is(err, io.EOF):
			return markRoot(out, roots), nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		m := in.line.parseMount(names)
		if m == nil {
			continue
		}
		isRoot := m.Mountpoint == "/"
		if isRoot {
			roots = append(roots, m)
		}
		if isRoot || noDiskReason(m.FSType) == "" {
			out = append(out, processMount{Mount: m, isReadOnly: in.line.isReadOnly()})
		}
	}
}

// markRoot marks the lowest of the mounts on "/".
func markRoot(mounts []processMount, roots []*Mount) []processMount {
	if len(roots) == 0 {
		return mounts
	}
	root := bottom(roots)
	for i := range mounts {
		mounts[i].isRoot = mounts[i].Mount == root
	}
	return mounts
}

// isReadOnly reports whether the options of the mount itself, not those of its
// filesystem, have "ro".
func (l *mountLine) isReadOnly() bool {
	rest := l.text
	for range fieldOptions {
		_, rest, _ = bytes.Cut(rest, []byte(" "))
	}
	options, _, _ := bytes.Cut(rest, []byte(" "))
	return hasOption(string(options), "ro")
}

// backProcess finds the disks of a process's mounts, once for each filesystem.
func (s *snapshot) backProcess(ctx context.Context, mounts []processMount) []blkio.ProcessMount {
	here := make(map[blkio.Dev]*Mount) // the node's mount of each filesystem
	for _, m := range mounts {
		here[m.Dev] = nil
	}
	for _, m := range s.table.All() {
		if known, ok := here[m.Dev]; ok && known == nil && m.Unreadable == "" {
			here[m.Dev] = m
		}
	}
	backings := make(map[blkio.Dev]*blkio.Backing, len(here))
	out := make([]blkio.ProcessMount, 0, len(mounts))
	for _, m := range mounts {
		p := blkio.ProcessMount{Mountpoint: m.Mountpoint, ReadOnly: m.isReadOnly, IsRoot: m.isRoot}
		switch {
		case m.isRoot && m.FSType == "overlay":
			p.Upper = m.layers().upper
		case !m.isRoot:
			b, ok := backings[m.Dev]
			if !ok {
				b = s.backForeign(ctx, m.Mount, here[m.Dev])
				backings[m.Dev] = b
			}
			if len(b.Disks) == 0 && b.Err == nil {
				continue
			}
			p.Backing = b
		}
		out = append(out, p)
	}
	return out
}

// backForeign returns the backing of a mount of another mount namespace. here is the node's mount of the same
// filesystem, nil if there is none.
func (s *snapshot) backForeign(ctx context.Context, m, here *Mount) *blkio.Backing {
	if here != nil {
		b, _ := s.mountBacking(ctx, here, 0)
		return b
	}
	if m.FSType == "overlay" || m.isFromFile() {
		// By the paths of the layers, or of the file: runtimes mount overlays for their containers by paths of the node.
		elsewhere := *m
		elsewhere.Mountpoint = "" // which is not the node's: no layer is hidden by it
		b, _, _ := s.overlayBacking(ctx, &elsewhere, 0)
		return b
	}
	b := &blkio.Backing{FSType: m.FSType}
	disks, err := s.disksOf(m)
	switch {
	case err == nil:
		b.Disks, b.Warning = disks, writebackWarning(m)
	case m.FSType == "": // its line cannot be read
		b.Reason, b.Err = resolveFailed, err
	default:
		setReason(b, err)
	}
	return b
}
