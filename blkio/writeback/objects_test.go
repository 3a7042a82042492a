package writeback

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/bpf"
)

// TestObserverSpec verifies the values that the program gets before it is loaded.
func TestObserverSpec(t *testing.T) {
	spec, err := observerSpec()
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Maps["blkio_counts"].MaxEntries; n != maxCounts {
		t.Errorf("room for %d counts, want %d", n, maxCounts)
	}
	p := spec.Programs["blkio_dirtied"]
	if p.Type != ebpf.Tracing || p.AttachType != ebpf.AttachTraceRawTp || p.AttachTo != "writeback_dirty_folio" {
		t.Errorf("%s attaches as %s, %s to %s", p.Name, p.Type, p.AttachType, p.AttachTo)
	}
}

// TestStructures compares the structures of Go with those of the programs: the sizes, and the fields with their offsets.
func TestStructures(t *testing.T) {
	for object, types := range map[string]map[string]any{
		"observer": {"slot": slot{}, "count": count{}, "count_key": countKey{}},
		"owner":    {"answer": answer{}},
	} {
		spec, err := bpf.Load(object)
		if err != nil {
			t.Fatal(err)
		}
		for name, ours := range types {
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
}
