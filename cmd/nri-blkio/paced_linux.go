package main

import (
	"context"
	"time"
)

// paced returns a function that has fn called soon, and at most once in each pause until ctx ends. Calls within a pause become
// one call after it. The function does not wait for fn.
func paced(ctx context.Context, pause time.Duration, fn func()) (soon func()) {
	due := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-due:
			case <-ctx.Done():
				return
			}
			fn()
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		select {
		case due <- struct{}{}:
		default: // it is due already
		}
	}
}
