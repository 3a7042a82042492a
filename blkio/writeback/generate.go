package writeback

// The programs are compiled once for all kernels, and for processors of each byte order; the
// objects are committed: clang, llvm and libbpf-dev are needed for `go generate` only.
// SHA256SUMS has the checksums of the sources and the objects, and TestObjectsMatchSource
// compares them. TOOLCHAIN names the compiler: the same one gives the same objects, which
// TestObjectsCompileAgain verifies where it is installed.

//go:generate sh bpf/compile.sh . observer owner
//go:generate sh -c "sh bpf/toolchain.sh >bpf/TOOLCHAIN"
//go:generate sh -c "sha256sum bpf/*.[ch] bpf/compile.sh *_bpfe[lb].o >bpf/SHA256SUMS"
