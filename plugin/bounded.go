package plugin

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// bounded runs fn and waits for it at most d. A call that hangs in the kernel
// cannot be interrupted: fn then goes on alone, its late result is dropped,
// and what it left undone is the reconciler's work. A panic of fn is an error
// with its stack: nothing that a tenant wrote may end the plugin.
func bounded(ctx context.Context, d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	done := make(chan error, 1)
	go func() {
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
