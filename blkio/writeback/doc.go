// Package writeback reports the writeback owner of a file, its writers, and the cgroups
// that its pages are charged to.
//
// The kernel gives an inode to one cgroup's writeback (inode.i_wb): all that is written
// to it is charged to that cgroup and throttled by its io.max, whichever cgroup wrote it. None of
// that is in procfs; it is read with BPF. The programs are in bpf/, written in C and
// compiled once for all kernels; the loader relocates them to the structures of the
// running kernel (CO-RE). They read, and change nothing.
//
// Source: fs/fs-writeback.c, mm/page-writeback.c; Documentation/bpf/btf.rst.
package writeback
