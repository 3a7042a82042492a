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
