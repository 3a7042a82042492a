package cluster

import (
	"context"
	"sync"
	"time"
)

// contact is whether the API server answers. The watch of the pods, which each node has, finds out;
// all other requests wait until it does. So a node sends one request at a time to an API server that
// is overloaded or away, and not one for each object.
type contact struct {
	mu    sync.Mutex    // guards the fields below
	opens chan struct{} // closed while the API server answers
	err   error         // the last failure; nil while it answers
	since time.Time
}

func newContact(now time.Time) *contact {
	return &contact{opens: make(chan struct{}), since: now}
}

// report notes the result of a request for the pods.
func (c *contact) report(now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.isOpen()
	switch {
	case err == nil && !was:
		close(c.opens)
		c.since = now
	case err != nil && was:
		c.opens = make(chan struct{})
		c.since = now
	}
	c.err = err
}

// isOpen is called with the lock.
func (c *contact) isOpen() bool {
	select {
	case <-c.opens:
		return true
	default:
		return false
	}
}

// state returns whether the API server answers, since when, and the last failure.
func (c *contact) state() (answers bool, since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpen(), c.since, c.err
}

// wait returns when the API server answers, with an error if the context ends before.
func (c *contact) wait(ctx context.Context) error {
	select {
	case <-c.waiting():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *contact) waiting() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opens
}
