package hostfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("another instance of nri-blkio holds the lock of this node")

// TryLock locks a file by flock(2), and returns ErrLocked if another process holds the
// lock. The kernel releases the lock when the process ends or the result is closed. Only
// root may write to the file's directory, so that no tenant can hold the lock.
func TryLock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if err = stillThere(f); err == nil {
			return f, nil
		}
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, ErrLocked) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock the node: flock %s: %w", path, err)
}

// stillThere returns ErrLocked if the file was removed or replaced after it was opened:
// another process may hold the lock on the new one.
func stillThere(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(f.Name())
	if err != nil || !os.SameFile(mine, now) {
		return ErrLocked
	}
	return nil
}
