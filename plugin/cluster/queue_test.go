package cluster

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func TestQueue(t *testing.T) {
	q := newQueue()
	q.put("c")
	select {
	case <-q.wake:
		t.Error("put wakes the loop")
	default:
	}
	for _, uid := range []string{"b", "a", "b"} {
		q.add(uid)
	}
	select {
	case <-q.wake:
	case <-time.After(time.Minute):
		t.Fatal("add does not wake the loop")
	}
	now := time.Now()
	taken := func(what string, want ...string) (next time.Time) {
		t.Helper()
		got, next := q.take(now)
		equal(t, what, want, got)
		return next
	}
	taken("all", "a", "b", "c")
	if next := taken("again"); !next.IsZero() {
		t.Errorf("the next one is due at %v", next)
	}
}

// TestQueuePace verifies that a pod that changes again and again is taken now and then, that others are taken at once, and that
// nothing is kept of a pod that has not changed for a time.
func TestQueuePace(t *testing.T) {
	q, now, taken := newQueue(), time.Now(), map[string]int{}
	var late time.Duration
	begin := now
	for range 50 * 20 { // 20 s with 50 changes a second
		q.put("busy")
		if now.Sub(begin)%(5*time.Second) == 0 {
			q.put("other")
		}
		uids, next := q.take(now)
		for _, uid := range uids {
			taken[uid]++
		}
		if len(uids) == 0 && !next.After(now) {
			t.Fatalf("nothing is taken at %v, and the next one is due at %v", now, next)
		}
		late = max(late, next.Sub(now))
		now = now.Add(20 * time.Millisecond)
	}
	if want := map[string]int{"busy": changesAtOnce + 19, "other": 4}; !maps.Equal(taken, want) || late > changeInterval {
		t.Errorf("taken %v, want %v; late by %v", taken, want, late)
	}
	now = now.Add(time.Second)
	if uids, _ := q.take(now); !slices.Equal(uids, []string{"busy"}) {
		t.Errorf("the last change: taken %v", uids)
	}
	if q.take(now.Add(time.Minute)); len(q.paid) > 0 {
		t.Errorf("%v is kept", q.paid)
	}
}
