package wait

import (
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// To add a kernel: go test -run TestKernels -kernel linux-X.Y -btf VMLINUX -xfs MODULE, with ELF or raw BTF files.
var (
	addKernel = flag.String("kernel", "", "name of the kernel to add to testdata")
	addBTF    = flag.String("btf", "", "its BTF")
	addXFS    = flag.String("xfs", "", "the BTF of its xfs module")
)

// read has the fields that the programs read.
func read() map[string][]string {
	return map[string][]string{
		"kernfs_node": {"id"}, "cgroup": {"kn"}, "cgroup_subsys_state": {"cgroup"}, "blkcg": {"css"}, "blkcg_gq": {"blkcg", "parent"},
		"blkg_policy_data": {"blkg"}, "throtl_grp": {"pd"}, "throtl_qnode": {"tg"}, "gendisk": {"part0"}, "block_device": {"bd_disk", "bd_dev"},
		"bio": {"bi_bdev", "bi_opf", "bi_blkg"}, "request_queue": {"disk"}, "blk_mq_alloc_data": {"q"}, "request": {"bio", "start_time_ns"},
		"super_block": {"s_bdev"}, "bdi_writeback": {"blkcg_css"}, "inode": {"i_sb", "i_wb"}, "address_space": {"host"}, "folio": {"mapping"},
		"dirty_throttle_control": {"thresh"}, "journal_s": {"j_fs_dev"}, "xfs_mount": {"m_super"},
	}
}

// TestKernels verifies that real kernels have each hook, and that the programs find all fields. The kernels' types are reduced to
// those. That a program passes the verifiers of these kernels is a matter of the e2e tests.
func TestKernels(t *testing.T) {
	if *addKernel != "" {
		writeKernel(t)
		return
	}
	for name, hasControl := range map[string]bool{"linux-6.1": false, "linux-6.12": false, "linux-6.18": true, "linux-7.2": true} {
		kernel, err := btf.LoadSpec(filepath.Join("testdata", name+".btf"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range hooks {
			_, isUring := hooks[i].needs["io_cqring_wait"]
			isInlined := isUring && name == "linux-6.1" // and so completions are unknown there
			if err := (types{kernel}).check(&hooks[i]); (err != nil) != isInlined {
				t.Errorf("%s: %s: %v", name, hooks[i].causes[0], err)
			}
		}
		if got, err := (types{kernel}).hasControl(); err != nil || got != hasControl {
			t.Errorf("%s: has a dirty_throttle_control %t, %v", name, got, err)
		}
		spec, err := loadObject()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range spec.Programs {
			var relocations []*btf.CORERelocation
			for i := range p.Instructions {
				if r := btf.CORERelocationMetadata(&p.Instructions[i]); r != nil {
					relocations = append(relocations, r)
				}
			}
			fixups, err := btf.CORERelocate(relocations, []*btf.Spec{kernel}, binary.LittleEndian, nil)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, p.Name, err)
			}
			for i, f := range fixups {
				if strings.HasSuffix(f.String(), "=poison") {
					t.Errorf("%s: %s does not find %s", name, p.Name, relocations[i])
				}
			}
		}
	}
}

// TestCheck verifies that a hook with other arguments is refused, and one of a filesystem that is not loaded left out.
func TestCheck(t *testing.T) {
	kernel, err := btf.LoadSpec("testdata/linux-6.12.btf")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		hook hook
		want string
	}{
		"fits":         {hook{needs: map[string][]string{"throtl_add_bio_tg": {"bio", "throtl_qnode", "throtl_grp"}}}, ""},
		"other order":  {hook{needs: map[string][]string{"throtl_add_bio_tg": {"throtl_qnode", "bio"}}}, "parameter 0 of throtl_add_bio_tg is no throtl_qnode"},
		"fewer":        {hook{needs: map[string][]string{"io_schedule": {"bio"}}}, "parameter 0 of io_schedule is no bio"},
		"no function":  {hook{needs: map[string][]string{"wait_for_godot": nil}}, "the kernel has no wait_for_godot"},
		"trace":        {hook{needs: map[string][]string{"btf_trace_block_rq_issue": {"", "bio"}}}, "parameter 1 of btf_trace_block_rq_issue is no bio"},
		"not loaded":   {hook{of: "bcachefs", needs: map[string][]string{"wait_for_godot": nil}}, "not loaded"},
		"loaded":       {hook{of: "journal_s", needs: map[string][]string{"wait_for_godot": nil}}, "the kernel has no wait_for_godot"},
		"a value":      {hook{needs: map[string][]string{"io_schedule_timeout": {"bio"}}}, "parameter 0 of io_schedule_timeout is no bio"},
		"without type": {hook{needs: map[string][]string{"io_schedule_timeout": {""}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := (types{kernel}).check(&tt.hook); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// writeKernel adds a kernel to testdata.
func writeKernel(t *testing.T) {
	t.Helper()
	kernel, err := btf.LoadSpec(*addBTF)
	if err != nil {
		t.Fatal(err)
	}
	all := types{kernel}
	if *addXFS != "" {
		f, err := os.Open(*addXFS)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		xfs, err := btf.LoadSplitSpecFromReader(f, kernel)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, xfs)
	}
	reduced, kept := reducer{}, []btf.Type{}
	names := []string{"btf_trace_balance_dirty_pages", "req_flag_bits"}
	for i := range hooks {
		names = slices.AppendSeq(names, maps.Keys(hooks[i].needs))
	}
	slices.Sort(names)
	for _, name := range append(names, slices.Sorted(maps.Keys(read()))...) {
		if found := all.any(name); found != nil {
			kept = append(kept, reduced.reduce(found))
		} else {
			t.Errorf("%s has no %s", *addKernel, name)
		}
	}
	b, err := btf.NewBuilder(kept, nil)
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

// any returns the type, of a kind that is in testdata, with a name.
func (t types) any(name string) btf.Type {
	if f, err := find[*btf.Func](t, name); err == nil {
		return f
	}
	if s, err := find[*btf.Struct](t, name); err == nil {
		return s
	}
	if e, err := find[*btf.Enum](t, name); err == nil {
		return e
	}
	if d, err := find[*btf.Typedef](t, name); err == nil {
		return d
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
		values := slices.DeleteFunc(slices.Clone(t.Values), func(v btf.EnumValue) bool { return v.Name != "__REQ_IDLE" })
		return &btf.Enum{Name: t.Name, Size: t.Size, Signed: t.Signed, Values: values}
	case *btf.Pointer:
		return &btf.Pointer{Target: r.target(t.Target)}
	case *btf.Func:
		return &btf.Func{Name: t.Name, Linkage: t.Linkage, Type: r.target(t.Type)}
	case *btf.Typedef:
		if strings.HasPrefix(t.Name, "btf_trace_") {
			return &btf.Typedef{Name: t.Name, Type: r.reduce(t.Type)}
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
