package storage

import "testing"

func TestBoundedMap(t *testing.T) {
	var m boundedMap[string, int]
	if _, ok := m.get("a"); ok {
		t.Error("an empty map has a value")
	}
	for i, key := range []string{"a", "b", "c"} {
		m.put(key, i+1, 2)
	}
	if got := m.copy(); len(got) != 2 || got["b"] != 2 {
		t.Errorf("a copy is %v", got)
	}
	for key, want := range map[string]int{"a": 1, "b": 2, "c": 0} {
		if got, ok := m.get(key); got != want || ok != (want > 0) {
			t.Errorf("%s is %d, %v, want %d", key, got, ok, want)
		}
	}
}
