package writeback

// The programs are compiled once for all kernels, and for processors of each byte order; the
// objects are committed: clang, llvm and libbpf-dev are needed for `go generate` only.
// bpf2go comes with the library, so that both have the same version. SHA256SUMS has the
// checksums of the sources and the objects, and TestObjectsMatchSource compares them.
// TOOLCHAIN names the compiler: the same one gives the same objects, which
// TestObjectsCompileAgain verifies where it is installed.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel,bpfeb -go-package writeback observer bpf/observer.bpf.c -- -O2 -mcpu=v3 -Wall -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel,bpfeb -go-package writeback owner bpf/owner.bpf.c -- -O2 -mcpu=v3 -Wall -Werror
//go:generate sh -c "sh bpf/toolchain.sh >bpf/TOOLCHAIN"
//go:generate sh -c "sha256sum generate.go bpf/*.[ch] *_bpfe[lb].go *_bpfe[lb].o >bpf/SHA256SUMS"
