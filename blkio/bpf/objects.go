// Package bpf has the BPF programs of the packages writeback and wait. They are in src/, written in C.
//
// They are compiled once for all kernels (CO-RE), and for processors of each byte order. The objects are committed: clang,
// llvm and libbpf-dev are needed for `go generate` only. SHA256SUMS has the checksums of the sources and the objects, and
// TestObjectsMatchSource compares them. TOOLCHAIN names the compiler: the same one gives the same objects, which
// TestObjectsCompileAgain verifies where it is installed.
package bpf

//go:generate sh compile.sh .
//go:generate sh -c "sh toolchain.sh >TOOLCHAIN"
//go:generate sh -c "sha256sum src/*.[ch] compile.sh *_bpfe[lb].o >SHA256SUMS"

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

//go:embed *.o
var objects embed.FS // constant

// Load returns the programs and maps of a source in src/, in this machine's byte order.
func Load(name string) (*ebpf.CollectionSpec, error) {
	order := "el"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = "eb"
	}
	object, err := objects.ReadFile(name + "_bpf" + order + ".o")
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("load the BPF object %s: %w", name, err)
	}
	return spec, nil
}
