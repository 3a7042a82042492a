// Package writeback reports the writeback owner of a file, its writers, and the cgroups
// that its pages are charged to. It also gives the votes by which the kernel moves a file
// to another owner.
//
// The kernel assigns an inode to the writeback of one cgroup (inode.i_wb). All buffered
// writes to the inode are charged to that cgroup, and throttled by its io.max, whichever
// cgroup wrote. None of that is in procfs, so BPF programs read it. The package bpf has
// them: compiled once for all kernels, the loader relocates them to the
// structures of the running kernel (CO-RE). The programs read the kernel's data, and change
// none.
//
// Source: fs/fs-writeback.c, mm/page-writeback.c; Documentation/bpf/btf.rst.
package writeback
