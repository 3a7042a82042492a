package wait

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/bpf"
)

// TestStructures compares the structures of Go with those of the program.
func TestStructures(t *testing.T) {
	spec, err := bpf.Load("wait")
	if err != nil {
		t.Fatal(err)
	}
	for name, ours := range map[string]any{"key": key{}, "held": held{}, "waited": waited{}, "thread": thread{}, "state": state{}} {
		var theirs *btf.Struct
		if err := spec.Types.TypeByName(name, &theirs); err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, m := range theirs.Members {
			want = append(want, fmt.Sprintf("%s at %d", m.Name, m.Offset.Bytes()))
		}
		typ := reflect.TypeOf(ours)
		for f := range typ.Fields() {
			got = append(got, fmt.Sprintf("%s at %d", strings.ToLower(f.Name), f.Offset))
		}
		if diff := cmp.Diff(want, got); diff != "" || typ.Size() != uintptr(theirs.Size) {
			t.Errorf("%s: %d bytes, want %d (-program, +Go):\n%s", name, typ.Size(), theirs.Size, diff)
		}
	}
}

// TestPrograms verifies that each program belongs to one hook, and that each cause has a hook and a name.
func TestPrograms(t *testing.T) {
	spec, err := bpf.Load("wait")
	if err != nil {
		t.Fatal(err)
	}
	causes := map[Cause]bool{}
	for i := range hooks {
		for _, name := range hooks[i].programs {
			p := spec.Programs[name]
			if p == nil {
				t.Errorf("no program %s, or it is of two hooks", name)
				continue
			}
			_, isFunction := hooks[i].needs[p.AttachTo]
			_, isTrace := hooks[i].needs["btf_trace_"+p.AttachTo]
			if !isFunction && !isTrace {
				t.Errorf("%s attaches to %s, which its hook does not check", name, p.AttachTo)
			}
			delete(spec.Programs, name)
		}
		for _, c := range hooks[i].causes {
			causes[c] = true
		}
	}
	for name := range spec.Programs {
		t.Errorf("%s is of no hook", name)
	}
	for c := range numCauses {
		if !causes[c] || c.String() == "" {
			t.Errorf("cause %d (%s) has no hook, or no name", c, c)
		}
	}
}
