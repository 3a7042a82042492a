package inventory

import "sync"

// cache keeps answers to questions for one pass. The caller finds an answer without the lock, because that can hang: two
// callers may find the same one. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu    sync.Mutex // guards known
	known map[K]V
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known := c.known[key]
	return v, known
}

func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[K]V{}
	}
	c.known[key] = v
}
