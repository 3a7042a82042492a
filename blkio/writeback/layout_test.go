package writeback

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// members are of a structure with unnamed ones in it, as struct folio has.
func members() []btf.Member {
	word := &btf.Int{Name: "unsigned long", Size: 8}
	first := &btf.Struct{Members: []btf.Member{
		{Name: "flags", Type: word},
		{Name: "order", Type: word, Offset: 64},
		{Name: "few", Type: word, Offset: 64, BitfieldSize: 3},
	}}
	second := &btf.Struct{Members: []btf.Member{{Name: "charge", Type: word, Offset: 128}}}
	named := &btf.Struct{Name: "page", Members: []btf.Member{{Name: "hidden", Type: word}}}
	inner := &btf.Union{Members: []btf.Member{
		{Type: first},
		{Name: "page", Type: named},
		{Type: &btf.Typedef{Name: "alias", Type: second}},
	}}
	return []btf.Member{{Name: "before", Type: word}, {Type: inner, Offset: 64}}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]int32{
		"before": 0, "flags": 8, "order": 16, "charge": 24, "page": 8,
		"hidden": -1, // a named member's own
		"few":    -1, // no address
		"none":   -1,
	} {
		off, ok := find(members(), name)
		if got := int32(off.Bytes()); ok && got != want || ok != (want >= 0) {
			t.Errorf("%s: %d, %v, want %d", name, got, ok, want)
		}
	}
}

// TestMissingField: the first one is named, and asking on is safe.
func TestMissingField(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Struct{Name: "inode", Size: 8, Members: members()[:1]}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	l := &layout{kernel: spec}
	if l.offset("inode", "before"); l.err != nil {
		t.Error(l.err)
	}
	l.offset("inode", "i_wb")
	l.offset("gone", "field")
	want := "struct inode has no field i_wb"
	if !errors.Is(l.err, ErrUnavailable) || l.err.Error() != ErrUnavailable.Error()+": "+want {
		t.Errorf("got %v, want %s", l.err, want)
	}
	if _, ok := l.enum("pageflags", "PG_head"); ok || l.reparents() {
		t.Error("found what is not there")
	}
}

// TestReparents: a structure tells how pages are charged, also where the compiler has
// left no function of that in the kernel's BTF.
func TestReparents(t *testing.T) {
	pointer := &btf.Pointer{Target: &btf.Struct{Name: "obj_cgroup"}}
	for structure, want := range map[string]bool{
		"mem_cgroup":          false, // Linux 6.12: for slab pages
		"mem_cgroup_per_node": true,
	} {
		b, err := btf.NewBuilder([]btf.Type{&btf.Struct{
			Name: structure, Size: 8, Members: []btf.Member{{Name: "objcg", Type: pointer}},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := b.Spec()
		if err != nil {
			t.Fatal(err)
		}
		if got := (&layout{kernel: spec}).reparents(); got != want {
			t.Errorf("objcg in %s: %v, want %v", structure, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	var key [keySize]byte
	var value [valueSize]byte
	for i, v := range []uint64{keyInode: 1, keyNumber: 2, keyWriter: 3, keyMemcg: 4} {
		if v != 0 {
			binary.NativeEndian.PutUint64(key[i:], v)
		}
	}
	for i, v := range []uint64{valueBytes: 5, valueCharged: 6, valueOwner: 7, valueRoot: 8} {
		if v != 0 {
			binary.NativeEndian.PutUint64(value[i:], v)
		}
	}
	binary.NativeEndian.PutUint32(value[valueDev:], 259<<20|300) // a minor over 255
	binary.NativeEndian.PutUint32(value[valueGeneration:], 9)
	want := Dirtied{
		Inode:  Inode{Dev: blkio.Dev{Major: 259, Minor: 300}, Number: 2, Generation: 9, Root: 8},
		Writer: 3, Charged: 6, Owner: 7, Bytes: 5,
	}
	if got := decode(&key, &value); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := fromKernelDev(kernelDev(want.Dev)); got != want.Dev {
		t.Errorf("%v comes back as %v", want.Dev, got)
	}
}

func TestForeign(t *testing.T) {
	for history, want := range map[uint16]int{0: 0, 0xffff: 16, 0x8001: 2} {
		if got := (Verdict{History: history}).Foreign(); got != want {
			t.Errorf("%x: %d, want %d", history, got, want)
		}
	}
}
