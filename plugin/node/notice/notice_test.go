package notice

import (
	"math"
	"testing"
	"time"
)

// TestTold verifies that a notice is told when it has lasted, again if it is to be or has another text, and again after it was not
// listed or was forgotten; and that another look finds nothing before the time that is known.
func TestTold(t *testing.T) {
	const patience, never = 5 * time.Second, time.Duration(math.MaxInt64)
	var known Ledger[string]
	once := Notice[string]{Key: "changeRejected"}
	lasting := Notice[string]{Key: "notWritten", Patience: patience, Again: time.Hour}
	small, large := Notice[string]{Key: "foreignLimits", Value: "small"}, Notice[string]{Key: "foreignLimits", Value: "large"}
	problem := Notice[string]{Key: "retried", End: &Line{Text: "over"}}
	at := time.Unix(1e9, 0)
	for i, step := range []struct {
		after  time.Duration
		listed []Notice[string]
		want   int
		next   time.Duration // until another look
	}{
		{0, []Notice[string]{once, lasting, once}, 1, patience},
		{patience - 1, []Notice[string]{once, lasting}, 0, 1},
		{1, []Notice[string]{lasting, once}, 1, time.Hour},
		{time.Hour - 1, []Notice[string]{once, lasting}, 0, 1},
		{1, []Notice[string]{once, lasting}, 1, time.Hour},
		{1, nil, 0, never},
		{1, []Notice[string]{once, lasting}, 1, patience},
		{patience, []Notice[string]{lasting}, 1, time.Hour},
		{1, []Notice[string]{small}, 1, never},
		{time.Hour, []Notice[string]{small}, 0, never},
		{1, []Notice[string]{large}, 1, never},
		{1, []Notice[string]{problem}, 1, never},
		{1, []Notice[string]{}, 1, never},
		{1, []Notice[string]{once}, 1, never},
	} {
		at = at.Add(step.after)
		if got := known.Due(step.listed, at); len(got) != step.want || len(known.Known) != min(len(step.listed), 2) {
			t.Errorf("step %d: %d notices are due, want %d; %d are kept", i, len(got), step.want, len(known.Known))
		}
		if got := known.Next.Sub(at); got != step.next {
			t.Errorf("step %d: another look is due after %v, want %v", i, got, step.next)
		}
	}
	known.Forget(func(key string) bool { return key == "notWritten" })
	if got := known.Due([]Notice[string]{once}, at); len(got) > 0 {
		t.Error("a notice of another kind was forgotten")
	}
	known.Forget(func(key string) bool { return key == "changeRejected" })
	if got := known.Due([]Notice[string]{once}, at); len(got) != 1 {
		t.Error("a forgotten notice is not told again")
	}
}
