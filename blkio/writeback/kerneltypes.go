package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// ErrUnavailable means that the kernel, or the privileges of this process, do not allow reading writeback
// owners. The reasons are no BPF, no BTF, a missing field, a missing capability, and lockdown.
var ErrUnavailable = errors.New("the writeback owner of files cannot be read on this kernel")

// kernelTypes has the types of the running kernel. The loader relocates the programs to them.
type kernelTypes struct {
	kernel  *btf.Spec
	modules []*btf.Spec
}

// loadKernelTypes reads the kernel's BTF. It fails if the programs need a field that this
// kernel was configured without.
func loadKernelTypes() (*kernelTypes, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: no BTF: %w", ErrUnavailable, err)
	}
	t := &kernelTypes{kernel: spec}
	if btrfs, err := btf.LoadKernelModuleSpec("btrfs"); err == nil { // otherwise it is not loaded, or built in
		t.modules = append(t.modules, btrfs)
	}
	return t, t.check()
}

// ForgetBTF frees the memory that loading programs took: the cached BTF, and the garbage of
// reading and relocating it, which is half of the process. A process that loads several
// programs calls it after the last one. The next load reads the BTF again.
func ForgetBTF() {
	btf.FlushKernelSpec()
	debug.FreeOSMemory()
}

// options returns how to load programs. Of the modules only btrfs matters; without options the library reads
// the BTF of all of them.
func (t *kernelTypes) options() ebpf.CollectionOptions {
	return ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{
		KernelTypes: t.kernel, ExtraRelocationTargets: t.modules,
	}}
}

// check names a field that the kernel lacks. The verifier would report it as an invalid
// instruction.
func (t *kernelTypes) check() error {
	for _, f := range []struct{ structure, field string }{
		{"inode", "i_wb"},       // CONFIG_CGROUP_WRITEBACK
		{"folio", "memcg_data"}, // CONFIG_MEMCG
	} {
		if !t.has(f.structure, f.field) {
			return fmt.Errorf("%w: struct %s has no field %s", ErrUnavailable, f.structure, f.field)
		}
	}
	return nil
}

// has reports whether a structure has a field. Fields of unnamed members count as the
// structure's own, as in C.
func (t *kernelTypes) has(structure, field string) bool {
	for _, spec := range append([]*btf.Spec{t.kernel}, t.modules...) {
		var s *btf.Struct
		if spec.TypeByName(structure, &s) == nil {
			return hasMember(s.Members, field)
		}
	}
	return false
}

func hasMember(members []btf.Member, field string) bool {
	for _, m := range members {
		if m.Name == field {
			return true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if hasMember(inner, field) {
			return true
		}
	}
	return false
}

// lockdownFile has the modes of lockdown, the one in force in brackets. Containers
// seldom have it mounted.
const lockdownFile = "/sys/kernel/security/lockdown"

// notLoaded returns the reason why the kernel takes no program. Under lockdown, the kernel's own error names
// only a helper that the program may not call.
//
// Source: bpf_base_func_proto in kernel/bpf/helpers.c; LOCKDOWN_BPF_READ_KERNEL belongs to the mode
// "confidentiality" (include/linux/security.h).
func notLoaded(err error, lockdownFile string) error {
	modes, _ := os.ReadFile(lockdownFile) // without, the kernel's own words
	if strings.Contains(string(modes), "[confidentiality]") {
		return fmt.Errorf("%w: the lockdown mode is confidentiality: %w", ErrUnavailable, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		// The error's own text is about RLIMIT_MEMLOCK, which is no limit for BPF since
		// Linux 5.11 (cilium/ebpf v0.21, map.go).
		return fmt.Errorf("%w: requires root, or CAP_BPF and CAP_PERFMON: %w", ErrUnavailable, fs.ErrPermission)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

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

func memberStruct(s *btf.Struct, name string) (*btf.Struct, bool) {
	for _, m := range s.Members {
		if m.Name == name {
			inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
			return inner, ok
		}
	}
	return nil, false
}
