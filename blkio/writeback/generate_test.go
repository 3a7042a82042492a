package writeback

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// TestObjectsMatchSource compares the sources, the flags of the compiler (generate.go)
// and the committed objects with the checksums that `go generate` wrote. It needs no
// clang: if one of them was changed without `go generate`, its checksum differs.
func TestObjectsMatchSource(t *testing.T) {
	var got bytes.Buffer
	for _, pattern := range []string{"generate.go", "bpf/*.[ch]", "*_bpfe[lb].go", "*_bpfe[lb].o"} {
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

// TestObjectsCompileAgain compiles the programs with the commands of generate.go, and
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
	commands, err := os.ReadFile("generate.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for line := range strings.Lines(string(commands)) {
		command, ok := strings.CutPrefix(line, "//go:generate go run github.com/cilium/ebpf/cmd/bpf2go ")
		if !ok {
			continue
		}
		args := append([]string{"run", "github.com/cilium/ebpf/cmd/bpf2go", "-output-dir", dir}, strings.Fields(command)...)
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	compiled, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(compiled) != 8 {
		t.Fatalf("compiled %v, %v; want an object and its Go file for each source and byte order", compiled, err)
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
	for _, rings := range []bool{false, true} {
		spec, err := observerSpec(rings)
		if err != nil {
			t.Fatal(err)
		}
		var use uint8
		if err := spec.Variables["use_ring_buffer"].Get(&use); err != nil || (use == 1) != rings {
			t.Errorf("use_ring_buffer is %d, %v, want %v", use, err, rings)
		}
		if n := spec.Maps["blkio_counts"].MaxEntries; n != maxCounts {
			t.Errorf("room for %d counts, want %d", n, maxCounts)
		}
		p := spec.Programs["blkio_dirtied"]
		if p.Type != ebpf.Tracing || p.AttachType != ebpf.AttachTraceRawTp || p.AttachTo != "writeback_dirty_folio" {
			t.Errorf("%s attaches as %s, %s to %s", p.Name, p.Type, p.AttachType, p.AttachTo)
		}
	}
}
