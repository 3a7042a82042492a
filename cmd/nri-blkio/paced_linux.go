package main

import (
	"context"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// paced returns a function that has fn called soon, and at most once in each pause until ctx ends. Calls within a pause become
// one call after it. The function does not wait for fn.
func paced(ctx context.Context, pause time.Duration, fn func()) (soon func()) {
	due := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			select {
			case <-due:
			case <-ctx.Done():
				return
			}
			fn()
			reminder.Sleep(ctx, pause)
		}
	}()
	return func() { reminder.Wake(due) }
}
