package cluster

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// limit bounds the requests for single objects. Each pod needs its namespace, which does not wait for others. The claims of one
// tenant's pods can be thousands, so of each tenant one request at a time waits for the limiter, which takes turns then.
type limit struct {
	*rate.Limiter

	mu    sync.Mutex       // guards the field below
	turns map[string]*turn // by namespace, of those with a waiting request
}

// turn is held by the one request of a tenant that waits for the limiter.
type turn struct {
	held    chan struct{} // has one slot
	waiting int           // requests, with the one that holds it
}

func newLimit() *limit {
	return &limit{Limiter: rate.NewLimiter(requestsPerSecond, requestsAtOnce), turns: map[string]*turn{}}
}

// wait waits until a request for a tenant may be sent.
func (l *limit) wait(ctx context.Context, tenant string) error {
	t := l.join(tenant)
	defer l.leave(tenant)
	select {
	case t.held <- struct{}{}:
		defer func() { <-t.held }()
		return l.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *limit) join(tenant string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[tenant]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		l.turns[tenant] = t
	}
	t.waiting++
	return t
}

func (l *limit) leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.turns[tenant]; t.waiting > 1 {
		t.waiting--
	} else {
		delete(l.turns, tenant)
	}
}
