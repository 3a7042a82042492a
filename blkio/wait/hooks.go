package wait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/btf"
)

// hook is a place in the kernel, with the programs that are attached to it together. Without one of them none runs.
type hook struct {
	causes []Cause
	// programs are attached in this order. One that ends a wait comes before the one that begins it, and otherwise the
	// begun ones would seem to last.
	programs []string
	// needs has the parameters of each function, by the names of their structures; "": another type.
	needs map[string][]string
	// of is a structure of the filesystem that has the hook. No function of a filesystem that is not loaded is
	// missed.
	of, module string
}

var hooks = []hook{ // constant
	{causes: []Cause{Limit}, programs: []string{"blkio_moving", "blkio_hold"}, needs: map[string][]string{
		"tg_dispatch_one_bio": {"throtl_grp"},
		"throtl_add_bio_tg":   {"bio", "throtl_qnode", "throtl_grp"},
	}},
	{causes: []Cause{Cost}, programs: []string{"blkio_cost_end", "blkio_cost"}, needs: map[string][]string{
		"ioc_rqos_throttle": {"rq_qos", "bio"},
	}},
	{causes: []Cause{DirtyNode, DirtyCgroup}, programs: []string{"blkio_dirty_end", "blkio_threshold", "blkio_dirty"}, needs: map[string][]string{
		"balance_dirty_pages": {"bdi_writeback"}, "btf_trace_balance_dirty_pages": {"", "bdi_writeback"},
	}},
	{causes: []Cause{Journal}, programs: []string{"blkio_commit_end", "blkio_commit", "blkio_transaction_end", "blkio_transaction"}, of: "journal_s", module: "jbd2", needs: map[string][]string{
		"jbd2_log_wait_commit": {"journal_s"}, "wait_transaction_locked": {"journal_s"},
	}},
	{causes: []Cause{Journal}, programs: []string{"blkio_xfs_end", "blkio_xfs"}, of: "xfs_mount", module: "xfs", needs: map[string][]string{
		"xfs_log_force_seq": {"xfs_mount"},
	}},
	{causes: []Cause{Writeback}, programs: []string{"blkio_writeback_end", "blkio_writeback"}, needs: map[string][]string{
		"folio_wait_writeback": {"folio"},
	}},
	{causes: []Cause{Queue}, programs: []string{"blkio_tag_end", "blkio_tag"}, needs: map[string][]string{
		"blk_mq_get_tag": {"blk_mq_alloc_data"},
	}},
	{causes: []Cause{Scheduler, Device}, programs: []string{"blkio_complete", "blkio_issue"}, needs: map[string][]string{
		"btf_trace_block_rq_issue": {"", "request"}, "btf_trace_block_rq_complete": {"", "request"},
	}},
	{causes: []Cause{IO}, programs: []string{"blkio_io_end", "blkio_io", "blkio_iotimeout_end", "blkio_iotimeout"}, needs: map[string][]string{
		"io_schedule": {}, "io_schedule_timeout": {""},
	}},
	{causes: []Cause{Async}, programs: []string{"blkio_uring_end", "blkio_uring"}, needs: map[string][]string{"io_cqring_wait": {}}},
	{causes: []Cause{Async}, programs: []string{"blkio_aio_end", "blkio_aio"}, needs: map[string][]string{"read_events": {}}},
}

// types has the types of the kernel and of the modules that have hooks.
type types []*btf.Spec

func loadTypes() (types, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w", err)
	}
	out := types{kernel}
	for i := range hooks {
		name := hooks[i].module
		if _, err := os.Stat(filepath.Join("/sys/kernel/btf", name)); name == "" || err != nil {
			continue // it is not loaded, or built in
		}
		module, err := btf.LoadKernelModuleSpec(name)
		if err != nil {
			return nil, fmt.Errorf("read the BTF of %s: %w", name, err)
		}
		out = append(out, module)
	}
	return out, nil
}

// errAbsent means that the filesystem of a hook is not loaded.
var errAbsent = errors.New("not loaded")

// check returns why the programs of a hook cannot be attached, or would read wrong arguments.
func (t types) check(h *hook) error {
	if h.of != "" {
		if _, err := find[*btf.Struct](t, h.of); err != nil {
			return errAbsent
		}
	}
	for name, want := range h.needs {
		params, err := t.params(name)
		if err != nil {
			return fmt.Errorf("the kernel has no %s", name)
		}
		for i, structure := range want {
			if i >= len(params) || structure != "" && pointee(params[i].Type) != structure {
				return fmt.Errorf("parameter %d of %s is no %s", i, name, structure)
			}
		}
	}
	return nil
}

// errNotRoot is what a wait for a journal needs. The pods of the plugin do not have it.
var errNotRoot = errors.New("this needs CAP_SYS_ADMIN: run it as root on the node")

// reason returns why the programs of a hook could not be attached. The library finds the functions of a module by the number of its types, for
// which the kernel requires CAP_SYS_ADMIN. Without that it takes them for unsupported.
func (t types) reason(h *hook, err error, isRoot bool) error {
	if err == nil || h.of == "" || isRoot {
		return err
	}
	if _, inModule := find[*btf.Struct](t[:1], h.of); inModule == nil {
		return err
	}
	return fmt.Errorf("the filesystem is a kernel module: %w", errNotRoot)
}

// mayFindTypes reports whether this process can open types by their number. 1 is that of the kernel's own.
func mayFindTypes() bool {
	handle, err := btf.NewHandleFromID(1)
	if err == nil {
		_ = handle.Close()
	}
	return !errors.Is(err, fs.ErrPermission)
}

// params returns the parameters of a function, or of a tracepoint by the name of its type.
func (t types) params(name string) ([]btf.FuncParam, error) {
	if f, err := find[*btf.Func](t, name); err == nil {
		if proto, ok := f.Type.(*btf.FuncProto); ok {
			return proto.Params, nil
		}
	}
	trace, err := find[*btf.Typedef](t, name)
	if err != nil {
		return nil, err
	}
	if pointer, ok := trace.Type.(*btf.Pointer); ok {
		if proto, ok := pointer.Target.(*btf.FuncProto); ok {
			return proto.Params, nil
		}
	}
	return nil, btf.ErrNotFound
}

// hasControl reports whether the tracepoint balance_dirty_pages has a dirty_throttle_control, as since Linux 6.18.
func (t types) hasControl() (bool, error) {
	params, err := t.params("btf_trace_balance_dirty_pages")
	if err != nil || len(params) < 3 {
		return false, errors.New("the kernel has no tracepoint balance_dirty_pages")
	}
	if pointee(params[2].Type) == "dirty_throttle_control" {
		return true, nil
	}
	if _, isInt := btf.UnderlyingType(params[2].Type).(*btf.Int); !isInt {
		return false, errors.New("the tracepoint balance_dirty_pages has an unknown threshold")
	}
	return false, nil
}

func find[T btf.Type](t types, name string) (found T, err error) {
	for _, spec := range t {
		if err = spec.TypeByName(name, &found); err == nil {
			return found, nil
		}
	}
	return found, err
}

// pointee returns the name of the structure that a type points to, or "".
func pointee(t btf.Type) string {
	pointer, ok := btf.UnderlyingType(t).(*btf.Pointer)
	if !ok {
		return ""
	}
	if s, ok := btf.UnderlyingType(pointer.Target).(*btf.Struct); ok {
		return s.Name
	}
	return ""
}
