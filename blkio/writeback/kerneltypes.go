package writeback

import (
	"errors"
	"fmt"
	"runtime/debug"

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
