package calibrate

import (
	"bytes"
	"crypto/rand"
	"unsafe"
)

// alignment is the alignment of memory for direct I/O: at least a logical block of the disk.
const alignment = 4096

// newBlock returns memory for direct I/O with random content, which a disk can neither compress
// nor deduplicate.
func newBlock(size int) []byte {
	memory := make([]byte, size+alignment)
	// The garbage collector does not move it.
	skip := alignment - int(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%alignment)
	block := memory[skip : skip+size : skip+size]
	_, _ = rand.Read(block) // it never fails
	return block
}

// isZero reports whether the start of a block has zeros only, as where nothing was ever written.
func isZero(block []byte) bool {
	var none [alignment]byte
	n := min(len(block), len(none))
	return bytes.Equal(block[:n], none[:n])
}
