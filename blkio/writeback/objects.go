package writeback

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

//go:embed *.o
var objects embed.FS // constant

// loadObject returns the programs and maps of a source in bpf/, in this machine's byte order.
func loadObject(name string) (*ebpf.CollectionSpec, error) {
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

// The structures of the programs. TestStructures compares them with those of the objects.

type count struct {
	Pages, Charged, Owner, Root uint64
	Dev, Generation             uint32
	First, Last                 uint64
}

type countKey struct{ Inode, Number, Writer, Memcg uint64 }

type slot struct {
	Key   countKey
	Value count
}

type answer struct {
	Owner, Bandwidth uint64
	Dev, Generation  uint32
	Average, History uint16
	Found            uint32
}
