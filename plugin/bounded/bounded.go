// Package bounded bounds the time that calls take which can hang in the kernel, and how many
// of them are under way.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A call that hangs in the kernel keeps a thread. The Go runtime ends a process with more than 10,000 threads.
const (
	Max = 512 // under way at a time; NRI's events come one by one
	// MaxOfPod is the number of calls of one pod. The kubelet retries for ever, and one pod's disk must not use
	// up the calls of all.
	MaxOfPod = 2
)

// ErrBusy is the error of a call that is not made because too many others hang.
var ErrBusy = errors.New("too many calls hang in the kernel: a disk does not answer")

// Calls bounds the time that calls take, and their number: of all, and of each pod.
type Calls struct {
	// Panicked is called after a call has panicked. It may be nil.
	Panicked func()

	mu   sync.Mutex // guards all below
	all  int
	pod  map[string]int
	idle chan struct{} // nil, or closed once all is 0
}

func (c *Calls) begin(pod string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= Max || c.pod[pod] >= MaxOfPod {
		return false
	}
	if c.pod == nil {
		c.pod = map[string]int{}
	}
	c.all++
	c.pod[pod]++
	return true
}

func (c *Calls) end(pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.pod[pod]--; c.pod[pod] == 0 {
		delete(c.pod, pod)
	}
	if c.all == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Count returns how many calls are under way.
func (c *Calls) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// Wait waits until no call is under way, at most d.
func (c *Calls) Wait(d time.Duration) {
	select {
	case <-c.untilIdle():
	case <-time.After(d):
	}
}

func (c *Calls) untilIdle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	if c.all == 0 {
		close(idle)
		c.idle = nil
	}
	return idle
}

// For is Within for at most d.
func (c *Calls) For(ctx context.Context, pod string, d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := Deadline(ctx, d)
	defer cancel()
	return c.Within(ctx, pod, fn)
}

// Deadline is context.WithTimeout with a cause that names the time.
func Deadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, overdue(d))
}

// overdue is the error of a call that was not done within this time. Its text is made when
// it is asked for: each event has a deadline, and hardly any event misses it.
type overdue time.Duration

func (d overdue) Error() string {
	return fmt.Sprintf("not done within %v: %v", time.Duration(d), context.DeadlineExceeded)
}

func (d overdue) Unwrap() error { return context.DeadlineExceeded }

// Within runs fn for a pod and waits for it until ctx ends. A call that hangs in the kernel cannot be
// interrupted. fn then continues alone, its late result is dropped, and the reconciler does the rest of its
// work.
func (c *Calls) Within(ctx context.Context, pod string, fn func(context.Context) error) error {
	if !c.begin(pod) {
		return ErrBusy
	}
	done := make(chan error, 1)
	go func() {
		growStack()
		panicked, err := Recovered(func() error { return fn(ctx) })
		if panicked && c.Panicked != nil {
			c.Panicked()
		}
		c.end(pod) // before the answer: the caller's next call must not find this one under way
		done <- err
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
		return context.Cause(ctx)
	}
}

// usualStack is the stack in bytes that a call seldom exceeds.
const usualStack = 8 << 10

// growStack grows the stack of a new goroutine in one step, while it is empty. Otherwise the stack grows in several steps, deep in the
// call, and each of them copies all frames.
//
//go:noinline
func growStack() {
	var room [usualStack]byte
	runtime.KeepAlive(&room)
}

// Recovered runs fn, and reports whether fn panicked. It returns a panic as an error with its
// stack: nothing that a tenant wrote may end the plugin.
func Recovered(fn func() error) (panicked bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			panicked, err = true, fmt.Errorf("internal error: %v\n%s", r, stack())
		}
	}()
	return false, fn()
}

// maxFrames is the number of frames of a stack that an error has.
const maxFrames = 64

// stack returns the stack of the function that panicked. Unlike debug.Stack it has neither
// addresses nor the number of the goroutine: the same panic has the same text each time, so that
// it is known to last (see package reminder).
func stack() string {
	pcs := make([]uintptr, maxFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)]) // without Callers, stack, the deferred function, and panic
	var out strings.Builder
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&out, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return out.String()
}
