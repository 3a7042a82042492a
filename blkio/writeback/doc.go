// Package writeback tells which cgroup the writeback of a file belongs to, who
// writes to it, and whom its pages are charged to.
//
// The kernel gives an inode to one cgroup's writeback (inode.i_wb): all that is
// written to it is charged to that cgroup and slowed by its io.max, whoever wrote
// it. None of that is in procfs; it is read with BPF, by programs that are
// assembled here with the offsets that the running kernel's BTF tells. They look,
// and change nothing.
//
// Source: fs/fs-writeback.c, mm/page-writeback.c; Documentation/bpf/btf.rst.
package writeback
