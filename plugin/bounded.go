package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// maxCalls is how many calls may be under way at a time. Each that hangs in the
// kernel keeps a thread, of which a process has 10,000 before the Go runtime
// ends it. NRI's events come one by one: so many at once are hanging.
const maxCalls = 512

// errBusy says that nothing more is tried until calls come back.
var errBusy = errors.New("too many calls hang in the kernel, a disk of this node does not answer")

// calls bounds the time that calls take, and their number.
type calls chan struct{}

func newCalls() calls { return make(calls, maxCalls) }

// bounded runs fn and waits for it at most d. A call that hangs in the kernel
// cannot be interrupted: fn then goes on alone, its late result is dropped,
// and what it left undone is the reconciler's work. A panic of fn is an error
// with its stack: nothing that a tenant wrote may end the plugin.
func (c calls) bounded(ctx context.Context, d time.Duration, fn func(context.Context) error) error {
	select {
	case c <- struct{}{}:
	default:
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	done := make(chan error, 1)
	go func() {
		defer func() { <-c }()
		defer cancel()
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("internal error: %v\n%s", r, debug.Stack())
			}
		}()
		done <- fn(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// Both may be ready: the result wins.
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("not done within %v: %w", d, context.Cause(ctx))
	}
}
