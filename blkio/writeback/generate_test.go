package writeback

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// TestObjectsMatchSource compares the sources, the command of the compiler (compile.sh)
// and the committed objects with the checksums that `go generate` wrote. It needs no
// clang: if one of them was changed without `go generate`, its checksum differs.
func TestObjectsMatchSource(t *testing.T) {
	var got bytes.Buffer
	for _, pattern := range []string{"bpf/*.[ch]", "bpf/compile.sh", "*_bpfe[lb].o"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, name := range files {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%x  %s\n", sha256.Sum256(content), name)
		}
	}
	want, err := os.ReadFile("bpf/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("run `go generate ./blkio/writeback` (-recorded, +found):\n%s", diff)
	}
}

// TestObjectsCompileAgain compiles the programs as `go generate` does, and
// compares the result with the commit. Another compiler gives other objects, so it needs
// the one of TOOLCHAIN; without that, TestObjectsMatchSource alone guards the objects.
func TestObjectsCompileAgain(t *testing.T) {
	want, err := os.ReadFile("bpf/TOOLCHAIN")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := exec.CommandContext(t.Context(), "sh", "bpf/toolchain.sh").Output(); err != nil || !bytes.Equal(got, want) {
		t.Logf("not compiled: the toolchain here is %q, %v; the one of the objects is %q", got, err, want)
		return
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", "bpf/compile.sh", dir, "observer", "owner").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	compiled, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(compiled) != 4 {
		t.Fatalf("compiled %v, %v; want an object for each source and byte order", compiled, err)
	}
	for _, name := range compiled {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Base(name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from what its source compiles to (%v): run `go generate ./blkio/writeback`", filepath.Base(name), err)
		}
	}
}

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
		spec, err := loadObject(object)
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
