package wait

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// TestKernels verifies that real kernels have each hook.
func TestKernels(t *testing.T) {
	for name, hasControl := range map[string]bool{"linux-6.1": false, "linux-6.12": false, "linux-6.18": true, "linux-7.2": true} {
		kernel, err := btf.LoadSpec("../bpf/testdata/" + name + ".btf")
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
	}
}

// TestCheck verifies that a hook with other arguments is refused, and one of a filesystem that is not loaded left out.
func TestCheck(t *testing.T) {
	kernel, err := btf.LoadSpec("../bpf/testdata/linux-6.12.btf")
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

// TestReason verifies that a missing right is told where the library takes a function of a module for unsupported, and only there.
func TestReason(t *testing.T) {
	kernel, err := btf.LoadSpec("../bpf/testdata/linux-6.12.btf")
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("not supported")
	for name, tt := range map[string]struct {
		hook   hook
		err    error
		isRoot bool
		want   error
	}{
		"module":           {hook{of: "of_a_module"}, refused, false, errNotRoot},
		"root":             {hook{of: "of_a_module"}, refused, true, refused},
		"built in":         {hook{of: "journal_s"}, refused, false, refused},
		"of no filesystem": {hook{}, refused, false, refused},
		"attached":         {hook{of: "of_a_module"}, nil, false, nil},
	} {
		if got := (types{kernel}).reason(&tt.hook, tt.err, tt.isRoot); !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
