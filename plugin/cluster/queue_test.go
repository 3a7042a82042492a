package cluster

import (
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
	equal(t, "taken", []string{"a", "b", "c"}, q.take())
	if again := q.take(); len(again) > 0 {
		t.Errorf("taken again: %q", again)
	}
}
