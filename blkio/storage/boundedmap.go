package storage

import (
	"maps"
	"sync"
)

// boundedMap is a map with its lock. Its zero value is empty and ready to use.
type boundedMap[K comparable, V any] struct {
	mu  sync.RWMutex // guards all below
	all map[K]V
}

// get returns the value of a key, and whether there is one.
func (m *boundedMap[K, V]) get(key K) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.all[key]
	return v, ok
}

// put sets the value of a key, unless the map has most keys already.
func (m *boundedMap[K, V]) put(key K, v V, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[K]V{}
	}
	if len(m.all) < most {
		m.all[key] = v
	}
}

// copy returns the keys with their values.
func (m *boundedMap[K, V]) copy() map[K]V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.all)
}
