/*
 * Reads the owner of an open file's writeback, and the state of the kernel's vote.
 *
 * User space runs the program on demand (bpf_prog_test_run_raw_tp in net/bpf/test_run.c)
 * with a file descriptor of its own process as the argument.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

struct answer {
	__u64 owner; /* cgroup ID; 0: the inode has none */
	__u64 bandwidth; /* of the owner's writeback, in pages per second */
	__u32 dev;
	__u32 generation;
	__u16 average; /* i_wb_frn_avg_time */
	__u16 history; /* i_wb_frn_history */
	__u32 found; /* 1 if the descriptor is that of a file */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer);
} blkio_answer SEC(".maps");

SEC("raw_tp")
int blkio_owner(__u64 *ctx)
{
	__u32 zero = 0;
	struct answer *answer = bpf_map_lookup_elem(&blkio_answer, &zero);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct file **files, *file;
	struct bdi_writeback *wb;
	struct inode *inode;

	if (!answer)
		return 0;
	files = BPF_CORE_READ(task, files, fdt, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), &files[ctx[0]]))
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return 0;
	answer->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	answer->generation = BPF_CORE_READ(inode, i_generation);
	answer->average = BPF_CORE_READ(inode, i_wb_frn_avg_time);
	answer->history = BPF_CORE_READ(inode, i_wb_frn_history);
	answer->found = 1;

	wb = BPF_CORE_READ(inode, i_wb);
	if (!wb)
		return 0; /* nothing was written to it since it is in memory */
	answer->bandwidth = BPF_CORE_READ(wb, avg_write_bandwidth);
	answer->owner = BPF_CORE_READ(wb, memcg_css, cgroup, kn, id);
	return 0;
}
