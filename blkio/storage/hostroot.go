package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// hostRoot is the host's root directory. Paths are the host's: absolute, and
// so are the symlinks in them.
type hostRoot struct {
	fd int // O_PATH
}

func openHostRoot(dir string) (*hostRoot, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's root %s: %w", dir, err)
	}
	return &hostRoot{fd: fd}, nil
}

func (h *hostRoot) Close() error { return unix.Close(h.fd) }

// errUncertain means that the rest of a path does not exist or cannot be read. The path is then used as it is
// written, until the next resolution.
var errUncertain = errors.New("missing or unreadable")

// maxSymlinks is the kernel's MAXSYMLINKS.
const maxSymlinks = 40

// resolve returns the path that a clean path p leads to, reading only filesystems that are local by t. It
// returns at the end of ctx even if the system call does not. The call then keeps a goroutine and a thread.
func (h *hostRoot) resolve(ctx context.Context, t *MountTable, p string) (string, error) {
	if ctx.Done() == nil {
		return h.walk(ctx, t, p)
	}
	type result struct {
		path     string
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicked = recover() // only the caller can decide what a panic ends
			done <- r
		}()
		r.path, r.err = h.walk(ctx, t, p)
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.path, r.err
	case <-ctx.Done():
		return "", fmt.Errorf("look for symlinks in %s: %w", p, ctx.Err())
	}
}

// walk follows the symlinks in a path. The caller compares the result with t as text, also if the error is
// errUncertain.
func (h *hostRoot) walk(ctx context.Context, t *MountTable, p string) (string, error) {
	err := h.plain(p)
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return p, err
	}
	done, rest := "/", strings.TrimPrefix(p, "/")
	for links := 0; rest != ""; {
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("look for symlinks in %s: %w", p, err)
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next := path.Join(done, name) // ".." of a link's target goes up here
		m, _ := t.find(next)
		if m == nil || !isLocal(m) {
			return path.Join(next, rest), nil
		}
		if m.Mountpoint == next || len(next) < len(done) {
			done = next
			continue
		}
		target, err := h.readlink(next)
		switch {
		case errors.Is(err, unix.EINVAL): // no symlink
			done = next
			continue
		case err != nil:
			return path.Join(next, rest), uncertain(err)
		}
		if links++; links > maxSymlinks {
			return "", fmt.Errorf("look for symlinks in %s: %w", p, unix.ELOOP)
		}
		if strings.HasPrefix(target, "/") {
			done = "/"
		}
		rest = strings.Trim(target+"/"+rest, "/")
	}
	return done, nil
}

// plain returns nil if p has no symlinks, as one system call finds out.
func (h *hostRoot) plain(p string) error {
	fd, err := retryEINTR(func() (int, error) {
		return unix.Openat2(h.fd, below(p), &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
	})
	if err != nil {
		return uncertain(err)
	}
	return unix.Close(fd)
}

func (h *hostRoot) readlink(p string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := retryEINTR(func() (int, error) { return unix.Readlinkat(h.fd, below(p), buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// blockDevice returns the number of the block device node at p, following
// symlinks as udev makes them: relative ones.
func (h *hostRoot) blockDevice(p string) (blkio.Dev, error) {
	var st unix.Stat_t
	err := unix.Fstatat(h.fd, below(p), &st, 0)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFBLK {
		err = unix.ENOTBLK
	}
	if err != nil {
		return blkio.Dev{}, fmt.Errorf("stat %s: %w", p, err)
	}
	return blkio.DevOf(st.Rdev), nil
}

// below makes a clean absolute path one below the root's descriptor.
func below(p string) string {
	if p == "/" {
		return "."
	}
	return p[1:]
}

func uncertain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOTDIR),
		errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("%w: %w", errUncertain, err)
	}
	return err
}

func retryEINTR(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
