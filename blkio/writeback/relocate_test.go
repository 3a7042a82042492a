package writeback

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// To add a kernel: go test -run TestRelocate -kernel linux-X.Y -btf VMLINUX [-btrfs MODULE],
// with ELF or raw BTF files.
var (
	addKernel = flag.String("kernel", "", "name of the kernel to add to testdata")
	addBTF    = flag.String("btf", "", "its BTF")
	addBtrfs  = flag.String("btrfs", "", "the BTF of its btrfs module")
)

// read has the fields that the programs read.
func read() map[string][]string {
	return map[string][]string{
		"kernfs_node": {"id"}, "cgroup": {"kn"}, "cgroup_subsys_state": {"cgroup"},
		"mem_cgroup": {"css"}, "obj_cgroup": {"memcg"}, "mem_cgroup_per_node": {"objcg"},
		"super_block": {"s_dev", "s_magic"}, "bdi_writeback": {"memcg_css", "avg_write_bandwidth"},
		"inode": {
			"i_sb", "i_ino", "i_generation", "i_wb", "i_wb_frn_avg_time", "i_wb_frn_history",
		},
		"address_space": {"host"}, "file": {"f_inode"}, "fdtable": {"fd"}, "files_struct": {"fdt"},
		"task_struct": {"files"}, "folio": {"flags", "index", "memcg_data", "_flags_1", "_folio_order"},
		"btrfs_key": {"objectid"}, "btrfs_root": {"root_key"}, "btrfs_inode": {"root", "vfs_inode"},
	}
}

// TestRelocate relocates the programs to the structures of real kernels, reduced to the fields that the
// programs read. The programs have variants for several kernels. The verifier removes accesses to fields that a
// kernel does not have.
func TestRelocate(t *testing.T) {
	if *addKernel != "" {
		writeKernel(t)
		return
	}
	want := map[string][]string{
		"linux-6.1":  {"folio___6_18"},
		"linux-6.12": {"folio___6_18", "folio___6_5"},
		"linux-6.18": {"folio___6_17", "folio___6_5"},
		"linux-7.2":  {"folio___6_17", "folio___6_5"},
	}
	for name, missing := range want {
		kernel, err := btf.LoadSpec(filepath.Join("testdata", name+".btf"))
		if err != nil {
			t.Fatal(err)
		}
		types := &kernelTypes{kernel: kernel}
		if err := types.check(); err != nil || !types.has("btrfs_inode", "root") {
			t.Errorf("%s lacks fields: %v", name, err)
		}
		if diff := cmp.Diff(missing, poisoned(t, kernel)); diff != "" {
			t.Errorf("%s: structures without a field (-want, +got):\n%s", name, diff)
		}
	}
}

// poisoned names the structures that an access was not found in.
func poisoned(t *testing.T, kernel *btf.Spec) (names []string) {
	t.Helper()
	observer, err := observerSpec()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := loadObject("owner")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*ebpf.ProgramSpec{observer.Programs["blkio_dirtied"], owner.Programs["blkio_owner"]} {
		var relocations []*btf.CORERelocation
		for i := range p.Instructions {
			if r := btf.CORERelocationMetadata(&p.Instructions[i]); r != nil {
				relocations = append(relocations, r)
			}
		}
		fixups, err := btf.CORERelocate(relocations, []*btf.Spec{kernel}, binary.LittleEndian, nil)
		if err != nil || len(fixups) < 10 {
			t.Fatalf("%s: %d relocations, %v", p.Name, len(fixups), err)
		}
		for i, f := range fixups {
			if strings.HasSuffix(f.String(), "=poison") {
				names = append(names, strings.Split(relocations[i].String(), `"`)[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// writeKernel adds a kernel to testdata.
func writeKernel(t *testing.T) {
	t.Helper()
	kernel, err := btf.LoadSpec(*addBTF)
	if err != nil {
		t.Fatal(err)
	}
	specs := []*btf.Spec{kernel}
	if *addBtrfs != "" {
		f, err := os.Open(*addBtrfs)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		btrfs, err := btf.LoadSplitSpecFromReader(f, kernel)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, btrfs)
	}
	var types []btf.Type
	reduced := reducer{}
	for name := range read() {
		for _, spec := range specs {
			var s *btf.Struct
			if spec.TypeByName(name, &s) == nil {
				types = append(types, reduced.reduce(s, nil))
				break
			}
		}
	}
	var flags *btf.Enum
	if err := kernel.TypeByName("pageflags", &flags); err != nil {
		t.Fatal(err)
	}
	flags.Values = slices.DeleteFunc(flags.Values, func(v btf.EnumValue) bool { return v.Name != "PG_head" })
	slices.SortFunc(types, func(a, b btf.Type) int { return strings.Compare(a.TypeName(), b.TypeName()) })
	b, err := btf.NewBuilder(append(types, flags), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", *addKernel+".btf"), raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reducer copies types with the fields that the programs read only. Pointers lead nowhere.
type reducer map[string]btf.Type

func (r reducer) reduce(t btf.Type, fields []string) btf.Type {
	switch t := t.(type) {
	case *btf.Struct:
		if done := r[t.Name]; done != nil {
			return done
		}
		small := &btf.Struct{Name: t.Name, Size: t.Size}
		if t.Name != "" {
			r[t.Name], fields = small, read()[t.Name]
		}
		small.Members = r.members(t.Members, fields)
		return small
	case *btf.Union:
		return &btf.Union{Name: t.Name, Size: t.Size, Members: r.members(t.Members, fields)}
	case *btf.Typedef:
		return &btf.Typedef{Name: t.Name, Type: r.reduce(t.Type, []string{"f"})} // memdesc_flags_t
	case *btf.Pointer:
		return &btf.Pointer{Target: (*btf.Void)(nil)}
	case *btf.Const:
		return r.reduce(t.Type, fields)
	case *btf.Volatile:
		return r.reduce(t.Type, fields)
	}
	return t
}

func (r reducer) members(members []btf.Member, fields []string) (kept []btf.Member) {
	for _, m := range members {
		if m.Name == "" || slices.Contains(fields, m.Name) {
			m.Tags, m.Type = nil, r.reduce(m.Type, fields)
			kept = append(kept, m)
		}
	}
	return kept
}
