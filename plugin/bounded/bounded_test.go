package bounded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCalls verifies that calls that hang use up threads, and new ones fail at once then.
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

// TestWithin verifies that the caller gets what the call returns, a panic as an error, and the cause of its
// deadline if the call comes back later. Wait waits for a late call.
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

// TestOfOnePod verifies that calls of one pod that hang are few, those of other pods go on, and one that comes
// back makes room.
func TestOfOnePod(t *testing.T) {
	var c Calls
	hang, started := make(chan struct{}), make(chan struct{})
	for range MaxOfPod {
		go func() {
			_ = c.Within(t.Context(), "hangs", func(context.Context) error { // it returns nil
				started <- struct{}{}
				<-hang
				return nil
			})
		}()
		<-started
	}
	nothing := func(context.Context) error { return nil }
	if err := c.Within(t.Context(), "hangs", nothing); !errors.Is(err, ErrBusy) {
		t.Errorf("of the same pod: %v", err)
	}
	if err := c.Within(t.Context(), "other", nothing); err != nil {
		t.Errorf("of another pod: %v", err)
	}
	if n := c.Count(); n != MaxOfPod {
		t.Errorf("%d calls under way, want %d", n, MaxOfPod)
	}
	close(hang)
	c.Wait(time.Minute)
	if err := c.Within(t.Context(), "hangs", nothing); err != nil {
		t.Errorf("after they came back: %v", err)
	}
}

// TestPodRoom verifies that a call that returns makes room for one more of its pod. A pod without calls under
// way takes no memory, because a node has thousands of pods in its time.
func TestPodRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		call := func(pod string, d time.Duration) {
			go func() {
				_ = c.Within(t.Context(), pod, func(context.Context) error { time.Sleep(d); return nil }) // it returns nil
			}()
			synctest.Wait()
		}
		call("pod", time.Second)
		call("pod", time.Minute)
		call("other", time.Second)
		time.Sleep(2 * time.Second)
		call("pod", time.Minute)
		if err := c.Within(t.Context(), "pod", func(context.Context) error { return nil }); !errors.Is(err, ErrBusy) {
			t.Errorf("a third call: %v", err)
		}
		if d := cmp.Diff(map[string]int{"pod": MaxOfPod}, c.pod); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		c.Wait(time.Hour)
		if len(c.pod) > 0 {
			t.Errorf("at the end: %v", c.pod)
		}
	})
}

// TestWaitTogether verifies that several may wait for the same calls, and all go on with the last one.
func TestWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		go func() {
			_ = c.Within(t.Context(), "pod", func(context.Context) error { time.Sleep(time.Second); return nil }) // it returns nil
		}()
		synctest.Wait()
		began, waited := time.Now(), make(chan time.Duration)
		for range 3 {
			go func() { c.Wait(time.Minute); waited <- time.Since(began) }()
		}
		for range 3 {
			if d := <-waited; d != time.Second {
				t.Errorf("waited %v", d)
			}
		}
	})
}

// TestWait verifies that Wait returns at once if no call is under way, with the last call, or at the end of its
// time.
func TestWait(t *testing.T) {
	for name, tt := range map[string]struct {
		calls []time.Duration // how long each of them takes
		want  time.Duration
	}{
		"none":         {nil, 0},
		"the last one": {[]time.Duration{time.Second, 3 * time.Second}, 3 * time.Second},
		"one hangs":    {[]time.Duration{time.Second, time.Hour}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Calls
				for i, d := range tt.calls {
					go func() {
						_ = c.Within(t.Context(), fmt.Sprint(i), func(context.Context) error { time.Sleep(d); return nil }) // it returns nil
					}()
				}
				synctest.Wait()
				began := time.Now()
				c.Wait(time.Minute)
				if got := time.Since(began); got != tt.want {
					t.Errorf("waited %v, want %v", got, tt.want)
				}
				time.Sleep(2 * time.Hour) // to the end of all
				c.Wait(0)
			})
		})
	}
}

// TestDeadline verifies that the cause of a deadline names the time, and counts as a deadline for errors.Is.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := Deadline(t.Context(), 500*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		err := context.Cause(ctx)
		if got, want := err.Error(), "not done within 500ms: context deadline exceeded"; got != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// explode panics.
func explode() { panic("no such key") }

// TestRecovered verifies that the error of a panic has the stack without the parts that differ between two panics
// at the same place. So a panic that occurs again is recognized as the same.
func TestRecovered(t *testing.T) {
	var texts []string
	for range 2 {
		done := make(chan error)
		go func() { // another number, and another stack in memory
			_, err := Recovered(func() error { explode(); return nil })
			done <- err
		}()
		texts = append(texts, (<-done).Error())
	}
	if texts[0] != texts[1] {
		t.Errorf("one panic has two texts:\n%s\n%s", texts[0], texts[1])
	}
	first, rest, _ := strings.Cut(texts[0], "\n")
	if where, _, _ := strings.Cut(rest, "\n"); first != "internal error: no such key" || !strings.HasSuffix(where, "plugin/bounded.explode") {
		t.Errorf("the error is\n%s", texts[0])
	}
	failed := errors.New("input/output error")
	if panicked, err := Recovered(func() error { return failed }); panicked || !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// TestPanicked verifies that Panicked is called for a call that panics, and not for one that returns an error.
func TestPanicked(t *testing.T) {
	panics := 0
	c := Calls{Panicked: func() { panics++ }}
	for _, call := range []func(context.Context) error{
		func(context.Context) error { return errors.New("input/output error") },
		func(context.Context) error { explode(); return nil },
	} {
		if err := c.For(t.Context(), "pod", time.Minute, call); err == nil {
			t.Error("no error")
		}
	}
	if panics != 1 {
		t.Errorf("%d panics, want 1", panics)
	}
}
