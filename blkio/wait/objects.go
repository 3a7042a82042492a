package wait

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

//go:embed wait_bpfel.o
var littleEndian []byte // constant

//go:embed wait_bpfeb.o
var bigEndian []byte // constant

// loadObject returns the programs and maps of bpf/wait.bpf.c, in this machine's byte order.
func loadObject() (*ebpf.CollectionSpec, error) {
	object := littleEndian
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		object = bigEndian
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("load the BPF object: %w", err)
	}
	return spec, nil
}

// The structures of the programs. TestStructures compares them with those of the object.

type key struct {
	Cgroup, By uint64
	Dev        uint32
	Cause, Op  uint16
}

type held struct{ Wall, Sum, Count, Bios, Last uint64 }

type waited struct{ Sum, Count uint64 }

type thread struct {
	Key          key
	Since, Pause uint64
}

type state struct{ Began, Lost uint64 }
