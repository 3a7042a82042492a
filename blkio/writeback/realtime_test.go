package writeback

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestRingSleeps has the locks of struct bpf_ringbuf as kernels have had them.
func TestRingSleeps(t *testing.T) {
	word := &btf.Int{Name: "unsigned int", Size: 4}
	raw := &btf.Struct{Name: "raw_spinlock", Members: []btf.Member{{Name: "raw_lock", Type: word}}}
	typedef := func(name string, of btf.Type) btf.Type { return &btf.Typedef{Name: name, Type: of} }
	for _, tt := range []struct {
		name string
		lock btf.Type // nil: there is no struct bpf_ringbuf
		want bool
	}{
		{"spinlock_t", typedef("spinlock_t", &btf.Struct{Name: "spinlock", Members: []btf.Member{
			{Type: &btf.Union{Members: []btf.Member{{Name: "rlock", Type: raw}}}},
		}}), false},
		{"spinlock_t with PREEMPT_RT", typedef("spinlock_t", &btf.Struct{Name: "spinlock", Members: []btf.Member{
			{Name: "lock", Type: &btf.Struct{Name: "rt_mutex_base", Members: []btf.Member{{Name: "wait_lock", Type: typedef("raw_spinlock_t", raw)}}}},
		}}), true},
		{"raw_spinlock_t", typedef("raw_spinlock_t", raw), false},
		{"rqspinlock_t", typedef("rqspinlock_t", &btf.Struct{Name: "rqspinlock", Members: []btf.Member{{Name: "val", Type: word}}}), false},
		{"no structure", word, false},
		{"no ring buffer", nil, false},
	} {
		s := &btf.Struct{Name: "bpf_ringbuf", Size: 8, Members: []btf.Member{{Name: "spinlock", Type: tt.lock}}}
		if tt.lock == nil {
			s = &btf.Struct{Name: "other", Size: 8, Members: []btf.Member{{Name: "x", Type: word}}}
		}
		b, err := btf.NewBuilder([]btf.Type{s}, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := b.Spec()
		if err != nil {
			t.Fatal(err)
		}
		if got := (&kernelTypes{kernel: spec}).ringSleeps(); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
