// Package guard keeps a value and its lock together, so that no other code reaches the value
// without the lock.
package guard

import "sync"

// Value is a value with its lock.
type Value[T any] struct {
	mu    sync.Mutex
	value T
}

// New returns a value with a lock of its own.
func New[T any](value T) *Value[T] { return &Value[T]{value: value} }

// Lock returns the value, which is the caller's until Unlock.
func (v *Value[T]) Lock() *T {
	v.mu.Lock()
	return &v.value
}

// Unlock is deferred right after Lock.
func (v *Value[T]) Unlock() { v.mu.Unlock() }

// Ref refers to a part, of type P, of a Value[T]. Code without the lock can keep and compare a
// Ref, but cannot reach the part. Two are equal if they refer to the same part. The zero value
// refers to no part.
type Ref[T, P any] struct{ part *P }

// RefTo returns a Ref to a part of a Value[T].
func RefTo[T, P any](part *P) Ref[T, P] { return Ref[T, P]{part} }

// In returns the part, or nil for the zero value. The argument is the result of Lock: In needs it as evidence
// that the caller holds the lock.
func (r Ref[T, P]) In(locked *T) *P {
	if locked == nil {
		panic("guard: a part is reached without its lock")
	}
	return r.part
}
