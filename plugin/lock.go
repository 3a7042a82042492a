package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// lockPatience is how long a pre-installed plugin waits for its predecessor to end. The
// runtime waits 5 s for the plugin's registration, which begins afterwards, and starts
// it only once (docs/reference/quirks.md).
const lockPatience = 3 * time.Second

// lockPoll is how soon a standby notices that the active instance has ended.
const lockPoll = 500 * time.Millisecond

// errLocked says that another instance serves this node.
var errLocked = errors.New("another instance of nri-blkio holds the lock of this node")

// tryLock takes the node-wide lock, a flock on path that the kernel drops
// with the process. Two instances that both set io.max would fail each other's
// creates (docs/reference/quirks.md). The directory is root's, so no tenant can hold it.
func tryLock(path string) (*os.File, error) {
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
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock the node: flock %s: %w", path, err)
}

// stillThere says by errLocked that the file was removed or replaced after it
// was opened: another instance may hold the lock on the new one.
func stillThere(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(f.Name())
	if err != nil || !os.SameFile(mine, now) {
		return errLocked
	}
	return nil
}

// WaitLock stands by until no other process has the lock of this file. The lock ends
// with the process, or as the file is closed.
func WaitLock(ctx context.Context, path string, log logrus.FieldLogger) (*os.File, error) {
	said := false
	for {
		f, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		if !said {
			log.WithField("lock", path).Warn("Standing by: another instance serves this node")
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// lockInTime is WaitLock with an end: errLocked after lockPatience.
func lockInTime(ctx context.Context, path string, log logrus.FieldLogger) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	f, err := WaitLock(ctx, path, log)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f, err
}
