package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Calls that hang in the kernel keep a thread each, of which a process has
// 10,000 before the Go runtime ends it.
const (
	maxCalls = 512 // under way at a time; NRI's events come one by one
	// maxPodCalls are those of one pod: the kubelet tries again for ever, and
	// one pod's disk must not use up what all have.
	maxPodCalls = 2
)

// errBusy says that nothing more is tried until calls come back.
var errBusy = errors.New("too many calls hang in the kernel, a disk does not answer")

// calls bounds the time that calls take, and their number.
type calls struct {
	mu  sync.Mutex
	all int
	pod map[string]int
}

func (c *calls) begin(pod string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= maxCalls || c.pod[pod] >= maxPodCalls {
		return false
	}
	if c.pod == nil {
		c.pod = map[string]int{}
	}
	c.all++
	c.pod[pod]++
	return true
}

func (c *calls) end(pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.pod[pod]--; c.pod[pod] == 0 {
		delete(c.pod, pod)
	}
}

// bounded runs fn for a pod and waits for it at most d. A call that hangs in the
// kernel cannot be interrupted: fn then goes on alone, its late result is
// dropped, and what it left undone is the reconciler's work. A panic of fn is an
// error with its stack: nothing that a tenant wrote may end the plugin.
func (c *calls) bounded(ctx context.Context, pod string, d time.Duration, fn func(context.Context) error) error {
	if !c.begin(pod) {
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	done := make(chan error, 1)
	go func() {
		defer c.end(pod)
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
