package guard

import (
	"sync"
	"testing"
)

// TestValue lets the race detector check that many goroutines can change a value.
func TestValue(t *testing.T) {
	v := New(map[string]int{"a": 1})
	add := func(n int) int {
		m := v.Lock()
		defer v.Unlock()
		(*m)["a"] += n
		return (*m)["a"]
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 100 {
				add(1)
			}
		})
	}
	all.Wait()
	if got := add(0); got != 1001 {
		t.Errorf("%d, want 1001", got)
	}
}

// TestPanic verifies that a section that panics does not keep the lock.
func TestPanic(t *testing.T) {
	v := New(0)
	func() {
		defer func() { _ = recover() }()
		v.Lock()
		defer v.Unlock()
		panic("no")
	}()
	*v.Lock() = 2
	defer v.Unlock()
}

// TestRef verifies that a reference stays the same, and leads to its part only with the result of Lock.
func TestRef(t *testing.T) {
	type parts struct{ a, b int }
	v := New(parts{1, 2})
	var a, b Ref[parts, int]
	func() {
		p := v.Lock()
		defer v.Unlock()
		a, b = RefTo[parts](&p.a), RefTo[parts](&p.b)
	}()
	if a == b || a == (Ref[parts, int]{}) {
		t.Error("references to different parts are equal")
	}
	func() {
		p := v.Lock()
		defer v.Unlock()
		*a.In(p) = 3
		if p.a != 3 || (Ref[parts, int]{}).In(p) != nil {
			t.Errorf("%+v", *p)
		}
	}()
	defer func() {
		if recover() == nil {
			t.Error("reached without the lock")
		}
	}()
	a.In(nil)
}
