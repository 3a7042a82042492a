package plugin

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// lockPatience is how long a pre-installed plugin waits for its predecessor to end. The
// runtime waits 5 s for the plugin's registration, which begins afterwards, and starts
// it only once (docs/reference/quirks.md).
const lockPatience = 3 * time.Second

// lockPoll is how soon a standby notices that the active instance has ended.
const lockPoll = 500 * time.Millisecond

// WaitLock stands by until no other process has the lock of this file. The lock ends
// with the process, or as the file is closed.
func WaitLock(ctx context.Context, path string, log logrus.FieldLogger) (io.Closer, error) {
	isLogged := false
	for {
		f, err := hostfs.TryLock(path)
		if !errors.Is(err, hostfs.ErrLocked) {
			return f, err
		}
		if !isLogged {
			log.WithField("lock", path).Warn("Standing by: another instance serves this node")
			isLogged = true
		}
		if reminder.Sleep(ctx, lockPoll); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// lockInTime is WaitLock with an end: hostfs.ErrLocked after lockPatience.
func lockInTime(ctx context.Context, path string, log logrus.FieldLogger) (io.Closer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, hostfs.ErrLocked)
	defer cancel()
	f, err := WaitLock(ctx, path, log)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f, err
}
