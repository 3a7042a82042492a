package bpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestObjectsMatchSource compares the sources, the command of the compiler (compile.sh)
// and the committed objects with the checksums that `go generate` wrote. It needs no
// clang: if one of them was changed without `go generate`, its checksum differs.
func TestObjectsMatchSource(t *testing.T) {
	var got bytes.Buffer
	for _, pattern := range []string{"src/*.[ch]", "compile.sh", "*_bpfe[lb].o"} {
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
	want, err := os.ReadFile("SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("run `go generate ./blkio/bpf` (-recorded, +found):\n%s", diff)
	}
}

// TestObjectsCompileAgain compiles the programs as `go generate` does, and
// compares the result with the commit. Another compiler gives other objects, so it needs
// the one of TOOLCHAIN; without that, TestObjectsMatchSource alone guards the objects.
func TestObjectsCompileAgain(t *testing.T) {
	want, err := os.ReadFile("TOOLCHAIN")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := exec.CommandContext(t.Context(), "sh", "toolchain.sh").Output(); err != nil || !bytes.Equal(got, want) {
		t.Logf("not compiled: the toolchain here is %q, %v; the one of the objects is %q", got, err, want)
		return
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", "compile.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	compiled, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(compiled) != 6 {
		t.Fatalf("compiled %v, %v; want an object for each source and byte order", compiled, err)
	}
	for _, name := range compiled {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Base(name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from what its source compiles to (%v): run `go generate ./blkio/bpf`", filepath.Base(name), err)
		}
	}
}
