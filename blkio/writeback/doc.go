// Package writeback tells which cgroup the writeback of a file belongs to, who
// writes to it, and whom its pages are charged to.
//
// The kernel gives an inode to one cgroup's writeback (inode.i_wb): all that is
// written to it is charged to that cgroup and slowed by its io.max, whoever wrote
// it. None of that is in procfs; it is read with BPF. The programs are
// in bpf/, written in C and compiled once for all kernels; the loader relocates them
// to the structures of the running kernel (CO-RE). They read, and change nothing.
//
// Source: fs/fs-writeback.c, mm/page-writeback.c; Documentation/bpf/btf.rst.
package writeback
