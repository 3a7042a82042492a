package writeback

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// members has the members of a structure with unnamed ones in it, as struct folio has.
func members() []btf.Member {
	word := &btf.Int{Name: "unsigned long", Size: 8}
	first := &btf.Struct{Members: []btf.Member{
		{Name: "flags", Type: word},
		{Name: "order", Type: word, Offset: 64},
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

func TestHasMember(t *testing.T) {
	for name, want := range map[string]bool{
		"before": true, "flags": true, "order": true, "charge": true, "page": true,
		"hidden": false, // a named member's own
		"none":   false,
	} {
		if got := hasMember(members(), name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestMissingField verifies that the error names the first field that the kernel lacks.
func TestMissingField(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Struct{Name: "inode", Size: 8, Members: members()[:1]}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	types := &kernelTypes{kernel: spec}
	if !types.has("inode", "before") || types.has("inode", "i_wb") || types.has("gone", "field") {
		t.Error("has is wrong")
	}
	err = types.check()
	want := "struct inode has no field i_wb"
	if !errors.Is(err, ErrUnavailable) || err.Error() != ErrUnavailable.Error()+": "+want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestKernelTypes verifies that real kernels have all fields.
func TestKernelTypes(t *testing.T) {
	for _, name := range []string{"linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"} {
		kernel, err := btf.LoadSpec("../bpf/testdata/" + name + ".btf")
		if err != nil {
			t.Fatal(err)
		}
		types := &kernelTypes{kernel: kernel}
		if err := types.check(); err != nil || !types.has("btrfs_inode", "root") {
			t.Errorf("%s lacks fields: %v", name, err)
		}
	}
}

func TestDecode(t *testing.T) {
	page := uint64(os.Getpagesize())
	key := countKey{Inode: 1, Number: 2, Writer: 3, Memcg: 4}
	value := count{
		Pages: 5, Charged: 6, Owner: 7, Root: 8, Generation: 9, First: 10, Last: 11,
		Dev: 259<<20 | 300, // a minor over 255
	}
	want := Dirtied{
		Inode:  Inode{Dev: blkio.Dev{Major: 259, Minor: 300}, Number: 2, Generation: 9, Root: 8},
		Writer: 3, Charged: 6, Owner: 7, Bytes: 5 * page, First: 10 * page, Last: 11 * page,
	}
	if got := decode(&key, &value); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	value.First = 1<<64 - 1 // none yet
	if got := decode(&key, &value); got.First != got.Last {
		t.Errorf("got %+v, want an empty range", got)
	}
	if got := fromKernelDev(kernelDev(want.Dev)); got != want.Dev {
		t.Errorf("%v comes back as %v", want.Dev, got)
	}
}

func TestForeign(t *testing.T) {
	for history, want := range map[uint16]int{0: 0, 0xffff: 16, 0x8001: 2} {
		if got := (Votes{History: history}).Foreign(); got != want {
			t.Errorf("%x: %d, want %d", history, got, want)
		}
	}
}
