package bounded

import (
	"sync"
	"time"
)

// Token is a right that one goroutine has at a time. The holder can hang in the kernel, so others wait with a deadline, and can ask how
// long it has been held. The zero value cannot be taken.
type Token struct {
	held chan struct{} // has a value while the token is held

	mu    sync.Mutex // guards since
	since time.Time  // when it was taken; zero while it is free, and until its holder has noted the time
}

// NewToken returns a token that is free.
func NewToken() Token { return Token{held: make(chan struct{}, 1)} }

// Take waits for the token. It returns false if done is closed first.
func (t *Token) Take(done <-chan struct{}) bool {
	select {
	case t.held <- struct{}{}:
		t.note(time.Now())
		return true
	case <-done:
		return false
	}
}

// TryTake takes the token if it is free.
func (t *Token) TryTake() bool {
	select {
	case t.held <- struct{}{}:
		t.note(time.Now())
		return true
	default:
		return false
	}
}

// Return gives the token back. Only its holder calls it.
func (t *Token) Return() {
	t.note(time.Time{}) // first, so that it does not overwrite what the next holder notes
	<-t.held
}

func (t *Token) note(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = since
}

// IsHeld reports whether a goroutine has the token.
func (t *Token) IsHeld() bool { return len(t.held) > 0 }

// HeldFor returns how long the token has been held, and 0 if it is free.
func (t *Token) HeldFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		return 0
	}
	return time.Since(t.since)
}
