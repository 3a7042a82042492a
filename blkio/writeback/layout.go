package writeback

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// ErrUnavailable says that this kernel, or who runs this program, does not allow
// to look: no BPF, no BTF, a field that is not there, a capability, lockdown.
var ErrUnavailable = errors.New("the writeback owner of files cannot be read on this kernel")

// layout finds fields in the kernel's structures. The first field that is not
// there is its error; it may be asked on.
type layout struct {
	kernel  *btf.Spec
	modules []*btf.Spec
	err     error
}

func loadLayout() (*layout, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: no BTF: %w", ErrUnavailable, err)
	}
	l := &layout{kernel: spec}
	if btrfs, err := btf.LoadKernelModuleSpec("btrfs"); err == nil { // else it is not loaded, or built in
		l.modules = append(l.modules, btrfs)
	}
	return l, nil
}

// ForgetBTF frees what was read of the kernel's BTF, 1.5 MB: whoever loads several
// programs calls it after the last one. The next one reads it again.
func ForgetBTF() { btf.FlushKernelSpec() }

// offset is where a field is in a structure, in bytes. Fields of unnamed members
// count as the structure's own, as in C.
func (l *layout) offset(structure, field string) int32 {
	off, ok := l.lookup(structure, field)
	if !ok && l.err == nil {
		l.err = fmt.Errorf("%w: struct %s has no field %s", ErrUnavailable, structure, field)
	}
	return off
}

func (l *layout) lookup(structure, field string) (int32, bool) {
	for _, spec := range append([]*btf.Spec{l.kernel}, l.modules...) {
		var s *btf.Struct
		if spec.TypeByName(structure, &s) == nil {
			off, ok := find(s.Members, field)
			return int32(off.Bytes()), ok
		}
	}
	return 0, false
}

// reparents reports whether the kernel charges the page cache of a removed cgroup to
// the parent. There, folio.memcg_data leads to an obj_cgroup, which the kernel points
// to the parent; before, it leads to the cgroup itself.
//
// A field tells it, and no function: the compiler may inline that, and then BTF lacks it.
//
// Source: memcg_reparent_objcgs in mm/memcontrol.c, Linux 7.1 (commit 01b9da291c49 and
// the one after it).
func (l *layout) reparents() bool {
	_, ok := l.lookup("mem_cgroup_per_node", "objcg")
	return ok
}

// find looks for a member by name. A bit field is none: it has no address.
func find(members []btf.Member, name string) (btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset, m.BitfieldSize == 0
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
		if off, ok := find(inner, name); ok {
			return m.Offset + off, true
		}
	}
	return 0, false
}

// enum is a value of a named enumeration of the kernel.
func (l *layout) enum(name, value string) (uint64, bool) {
	var e *btf.Enum
	if err := l.kernel.TypeByName(name, &e); err != nil {
		return 0, false
	}
	for _, v := range e.Values {
		if v.Name == value {
			return v.Value, true
		}
	}
	return 0, false
}
