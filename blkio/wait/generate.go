package wait

// The program is compiled as those of blkio/writeback, which has the script and the versions of the compiler.

//go:generate sh ../writeback/bpf/compile.sh . wait
//go:generate sh -c "sha256sum bpf/*.[ch] *_bpfe[lb].o >bpf/SHA256SUMS"
