package cgroupfs

import "testing"

func TestMemoryMax(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{
		"none/memory.max": "max\n", "some/memory.max": "268435456\n", "odd/memory.max": "x\n",
	})
	for path, want := range map[string]uint64{"none": NoMemoryMax, "some": 256 << 20, "odd": NoMemoryMax, "gone": NoMemoryMax} {
		if got := h.Cgroup(path).MemoryMax(); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
