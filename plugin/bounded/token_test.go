package bounded

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestToken verifies that one goroutine has a token at a time, and that it has been held for the time of its holder, and not for that of
// an earlier one: a new holder has the token a moment before it notes its time.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, closed := NewToken(), make(chan struct{})
		close(closed)
		if !token.Take(nil) || !token.IsHeld() {
			t.Fatal("a free token cannot be taken")
		}
		if token.TryTake() || token.Take(closed) {
			t.Error("two goroutines have the token")
		}
		time.Sleep(time.Minute)
		if got := token.HeldFor(); got != time.Minute {
			t.Errorf("held for %v", got)
		}
		token.Return()
		if got := token.HeldFor(); got != 0 || token.IsHeld() {
			t.Errorf("a free token is held, for %v", got)
		}
		time.Sleep(time.Minute)
		token.held <- struct{}{} // what Take does first
		if got := token.HeldFor(); got != 0 {
			t.Errorf("a token that was just taken has been held for %v", got)
		}
		go token.Return()
		if !token.Take(nil) {
			t.Error("the token does not come back")
		}
	})
}
