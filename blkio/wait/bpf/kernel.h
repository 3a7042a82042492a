/*
 * The parts of the kernel's types that the program uses, as in blkio/writeback/bpf/kernel.h: a declaration has
 * only the fields that are read.
 */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
/* Only bpf_helper_defs.h uses these. */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

/* PAGE_MAPPING_FLAGS in include/linux/page-flags.h: set where folio->mapping is no address_space. */
#define MAPPING_FLAGS 3

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* From what block/ has of a cgroup to its ID, the inode number of its directory. */

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
	struct blkcg_gq *parent;
};

struct blkg_policy_data {
	struct blkcg_gq *blkg;
};

/* block/blk-throttle.h */

struct throtl_grp {
	struct blkg_policy_data pd;
};

struct throtl_qnode {
	struct throtl_grp *tg;
};

/* Disks and requests. */

struct gendisk {
	struct block_device *part0;
};

struct block_device {
	struct gendisk *bd_disk;
	__u32 bd_dev;
};

/* include/linux/blk_types.h */
#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0

enum req_flag_bits {
	__REQ_IDLE = 15, /* the loader fills in the kernel's value */
};

struct bio {
	struct block_device *bi_bdev;
	__u32 bi_opf;
	struct blkcg_gq *bi_blkg;
};

struct request_queue {
	struct gendisk *disk;
};

struct blk_mq_alloc_data {
	struct request_queue *q;
};

struct request {
	struct bio *bio;
	__u64 start_time_ns;
};

/* Filesystems and writeback. */

struct super_block {
	struct block_device *s_bdev;
};

struct bdi_writeback {
	struct cgroup_subsys_state *blkcg_css;
};

struct inode {
	struct super_block *i_sb;
	struct bdi_writeback *i_wb;
};

struct address_space {
	struct inode *host;
};

struct folio {
	struct address_space *mapping;
};

struct dirty_throttle_control {
	unsigned long thresh;
};

struct journal_s {
	struct block_device *j_fs_dev;
};

/* fs/xfs; the type is in the module's BTF, unless XFS is built in. */
struct xfs_mount {
	struct super_block *m_super;
};

#pragma clang attribute pop

#endif
