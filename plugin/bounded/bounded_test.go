package bounded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestCalls: calls that hang use up threads, and new ones fail at once
// then.
func TestCalls(t *testing.T) {
	var c Calls
	hang := make(chan struct{})
	started := make(chan struct{}, Max)
	for i := range Max {
		go func() {
			_ = c.For(t.Context(), fmt.Sprint(i/MaxOfPod), 1, func(context.Context) error { // its error is that it takes too long
				started <- struct{}{}
				<-hang
				return nil
			})
		}()
	}
	for range Max {
		<-started
	}
	ran := false
	if err := c.For(t.Context(), "other", 1, func(context.Context) error { ran = true; return nil }); !errors.Is(err, ErrBusy) || ran {
		t.Errorf("got %v, ran %v", err, ran)
	}
	close(hang)
}

// TestWithin: the caller gets what the call returns, a panic as an error, and the cause of
// its deadline if the call comes back later. Wait waits for a late call.
func TestWithin(t *testing.T) {
	failed := errors.New("input/output error")
	for name, tt := range map[string]struct {
		call func(context.Context) error
		want string
		is   error
	}{
		"done":   {call: func(context.Context) error { return nil }},
		"failed": {call: func(context.Context) error { return failed }, want: failed.Error(), is: failed},
		"panic":  {call: func(context.Context) error { panic("no such key") }, want: "internal error: no such key"},
		"late": {
			call: func(context.Context) error { time.Sleep(3 * time.Second); return failed },
			want: "not done within 1s: context deadline exceeded", is: context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Calls
				err := c.For(t.Context(), "pod", time.Second, tt.call)
				if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				c.Wait(time.Minute)
				if n := c.Count(); n != 0 {
					t.Errorf("%d calls under way", n)
				}
			})
		})
	}
}
