package bpf

import (
	"bytes"
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// To add a kernel: go test -run TestAddKernel ./blkio/bpf -kernel linux-X.Y -btf VMLINUX -xfs MODULE -btrfs MODULE, with ELF or
// raw BTF files.
var (
	addKernel = flag.String("kernel", "", "name of the kernel to add to testdata")
	addBTF    = flag.String("btf", "", "its BTF")
	addXFS    = flag.String("xfs", "", "the BTF of its xfs module")
	addBtrfs  = flag.String("btrfs", "", "the BTF of its btrfs module")
)

// read has the fields that the programs read.
func read() map[string][]string {
	return map[string][]string{
		"kernfs_node": {"id"}, "cgroup": {"kn"}, "cgroup_subsys_state": {"cgroup"}, "blkcg": {"css"}, "blkcg_gq": {"blkcg", "parent"},
		"mem_cgroup": {"css"}, "obj_cgroup": {"memcg"}, "mem_cgroup_per_node": {"objcg"},
		"blkg_policy_data": {"blkg"}, "throtl_grp": {"pd"}, "throtl_qnode": {"tg"}, "gendisk": {"part0"}, "block_device": {"bd_disk", "bd_dev"},
		"bio": {"bi_bdev", "bi_opf", "bi_blkg"}, "request_queue": {"disk"}, "blk_mq_alloc_data": {"q"}, "request": {"bio", "start_time_ns"},
		"super_block": {"s_bdev", "s_dev", "s_magic"}, "bdi_writeback": {"memcg_css", "blkcg_css", "avg_write_bandwidth"},
		"inode":         {"i_sb", "i_ino", "i_generation", "i_wb", "i_wb_frn_avg_time", "i_wb_frn_history"},
		"address_space": {"host"}, "file": {"f_inode"}, "fdtable": {"fd"}, "files_struct": {"fdt"}, "task_struct": {"files"},
		"folio":                  {"flags", "mapping", "index", "memcg_data", "_flags_1", "_folio_order"},
		"dirty_throttle_control": {"thresh"}, "journal_s": {"j_fs_dev"}, "xfs_mount": {"m_super"},
		"btrfs_key": {"objectid"}, "btrfs_root": {"root_key"}, "btrfs_inode": {"root", "vfs_inode"},
	}
}

// TestAddKernel adds a kernel to testdata: the functions that the programs hook, and the structures and enumerations that they read.
// Without -kernel it verifies that each kernel of testdata has no more than that.
func TestAddKernel(t *testing.T) {
	if *addKernel != "" {
		file := filepath.Join("testdata", *addKernel+".btf")
		if err := os.WriteFile(file, reduced(t, *addBTF, *addXFS, *addBtrfs), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range kernels(t) {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := reduced(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, and %d once it is reduced again", name, len(want), len(got))
		}
	}
}

// kernels returns the files with the types of kernels.
func kernels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/linux-*.btf")
	if err != nil || len(files) < 4 {
		t.Fatalf("kernels: %v, %v", files, err)
	}
	return files
}

// reduced returns the types of a kernel that the programs need, from the files of its BTF and of its modules'.
func reduced(t *testing.T, file string, modules ...string) []byte {
	t.Helper()
	kernel, err := btf.LoadSpec(file)
	if err != nil {
		t.Fatal(err)
	}
	specs := []*btf.Spec{kernel}
	for _, name := range modules {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		module, err := btf.LoadSplitSpecFromReader(f, kernel)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, module)
	}
	wait, err := Load("wait")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"pageflags", "req_flag_bits"}
	for _, p := range wait.Programs {
		names = append(names, p.AttachTo, "btf_trace_"+p.AttachTo)
	}
	slices.Sort(names)
	types, small := []btf.Type{}, reducer{}
	for _, name := range append(slices.Compact(names), slices.Sorted(maps.Keys(read()))...) {
		if found := find(specs, name); found != nil {
			types = append(types, small.reduce(found))
		}
	}
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// find returns a type, of a kind that is in testdata, or nil: the tests of the hooks tell what a kernel lacks.
func find(specs []*btf.Spec, name string) btf.Type {
	for _, spec := range specs {
		found, _ := spec.AnyTypesByName(name)
		for _, t := range found {
			switch t.(type) {
			case *btf.Func, *btf.Struct, *btf.Enum, *btf.Typedef:
				return t
			}
		}
	}
	return nil
}

// reducer copies types with the fields that the programs read only.
type reducer map[string]btf.Type

func (r reducer) reduce(t btf.Type) btf.Type {
	switch t := t.(type) {
	case *btf.Struct:
		if done := r[t.Name]; done != nil {
			return done
		}
		small := &btf.Struct{Name: t.Name, Size: t.Size}
		if t.Name != "" {
			r[t.Name] = small
		}
		small.Members = r.members(t.Members, read()[t.Name])
		return small
	case *btf.Union:
		return &btf.Union{Name: t.Name, Size: t.Size, Members: r.members(t.Members, nil)}
	case *btf.Enum:
		values := slices.DeleteFunc(slices.Clone(t.Values), func(v btf.EnumValue) bool { return v.Name != "__REQ_IDLE" && v.Name != "PG_head" })
		return &btf.Enum{Name: t.Name, Size: t.Size, Signed: t.Signed, Values: values}
	case *btf.Pointer:
		return &btf.Pointer{Target: r.target(t.Target)}
	case *btf.Func:
		return &btf.Func{Name: t.Name, Linkage: t.Linkage, Type: r.target(t.Type)}
	case *btf.Typedef:
		switch {
		case strings.HasPrefix(t.Name, "btf_trace_"):
			return &btf.Typedef{Name: t.Name, Type: r.reduce(t.Type)}
		case t.Name == "memdesc_flags_t": // a structure without a name
			return &btf.Typedef{Name: t.Name, Type: r.unnamed(t.Type, []string{"f"})}
		}
		return r.reduce(t.Type)
	case *btf.Const:
		return r.reduce(t.Type)
	case *btf.Volatile:
		return r.reduce(t.Type)
	case *btf.Array:
		return &btf.Array{Index: t.Index, Type: r.reduce(t.Type), Nelems: t.Nelems}
	}
	return t
}

// target reduces what a pointer leads to: the parameters of a function, and the name of a structure.
func (r reducer) target(t btf.Type) btf.Type {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.FuncProto:
		proto := &btf.FuncProto{Return: (*btf.Void)(nil)}
		for _, p := range t.Params {
			proto.Params = append(proto.Params, btf.FuncParam{Name: p.Name, Type: r.reduce(p.Type)})
		}
		return proto
	case *btf.Struct:
		if _, isRead := read()[t.Name]; isRead || t.Name == "rq_qos" {
			return r.reduce(t)
		}
	}
	return (*btf.Void)(nil)
}

// members keeps the fields, and the unnamed members that have one.
func (r reducer) members(members []btf.Member, fields []string) (kept []btf.Member) {
	for _, m := range members {
		switch {
		case slices.Contains(fields, m.Name):
		case m.Name == "" && hasField(m.Type, fields):
		default:
			continue
		}
		m.Tags = nil
		if m.Name == "" {
			m.Type = r.unnamed(m.Type, fields)
		} else {
			m.Type = r.reduce(m.Type)
		}
		kept = append(kept, m)
	}
	return kept
}

func (r reducer) unnamed(t btf.Type, fields []string) btf.Type {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return &btf.Struct{Size: t.Size, Members: r.members(t.Members, fields)}
	case *btf.Union:
		return &btf.Union{Size: t.Size, Members: r.members(t.Members, fields)}
	}
	return t
}

func hasField(t btf.Type, fields []string) bool {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	return slices.ContainsFunc(members, func(m btf.Member) bool {
		return slices.Contains(fields, m.Name) || m.Name == "" && hasField(m.Type, fields)
	})
}
