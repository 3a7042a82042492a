package writeback

import "github.com/cilium/ebpf/btf"

// ringSleeps reports whether a program that writes to a ring buffer can sleep, which a
// tracepoint does not allow: with PREEMPT_RT a spinlock_t is an rt_mutex. The ring
// buffer's lock is a raw_spinlock_t since Linux 6.12, 6.11.6, 6.6.84 and 6.1.115.
//
// Source: CVE-2024-50138, commit 8b62645b09f8 ("bpf: Use raw_spinlock_t in ringbuf");
// include/linux/spinlock_types.h.
func (t *kernelTypes) ringSleeps() bool {
	var ring *btf.Struct
	if t.kernel.TypeByName("bpf_ringbuf", &ring) != nil {
		return false // there are no ring buffers: to make one is an error
	}
	lock, ok := memberStruct(ring, "spinlock")
	if !ok {
		return false
	}
	inner, ok := memberStruct(lock, "lock")
	return ok && inner.Name == "rt_mutex_base"
}

// memberStruct returns the type of a member that is a structure.
func memberStruct(s *btf.Struct, name string) (*btf.Struct, bool) {
	for _, m := range s.Members {
		if m.Name == name {
			inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
			return inner, ok
		}
	}
	return nil, false
}
