/*
 * The parts of the kernel's types that the programs use.
 *
 * A declaration here has only the fields that are read. clang records each access
 * (CO-RE), and the loader rewrites its offset to the one in the running kernel's BTF.
 * A name with three underscores is a flavour: the loader ignores the part from there on,
 * so that one structure can be declared as different kernels have it.
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
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

/* PAGE_MAPPING_FLAGS in include/linux/page-flags.h: set where folio->mapping is no address_space. */
#define MAPPING_FLAGS 3

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* From what mm/ and block/ have of a cgroup to its ID, the inode number of its directory in cgroupfs. */

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct obj_cgroup {
	struct mem_cgroup *memcg;
};

/* Linux 7.1 and later. */
struct mem_cgroup_per_node___7_1 {
	struct obj_cgroup *objcg;
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

/* Files and their pages. */

struct super_block {
	struct block_device *s_bdev;
	__u32 s_dev;
	unsigned long s_magic;
};

struct bdi_writeback {
	struct cgroup_subsys_state *memcg_css, *blkcg_css;
	unsigned long avg_write_bandwidth;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino; /* u64 in Linux 7.2 */
	__u32 i_generation;
	struct bdi_writeback *i_wb;
	__u16 i_wb_frn_avg_time;
	__u16 i_wb_frn_history;
};

struct address_space {
	struct inode *host;
};

enum pageflags {
	PG_head = 1, /* the loader fills in the kernel's value */
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
	unsigned long memcg_data;
	unsigned long _flags_1; /* the low byte is the order, since Linux 6.6 */
};

/* Linux 6.5 and earlier have the order in a field of its own. */
struct folio___6_5 {
	unsigned char _folio_order;
};

/* Linux 6.17 and earlier. */
struct folio___6_17 {
	unsigned long flags;
};

/* Linux 6.18 and later. */
typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio___6_18 {
	memdesc_flags_t flags;
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

/* fs/btrfs; the types are in the module's BTF, and missing while it is not loaded. */

struct btrfs_key {
	__u64 objectid;
};

struct btrfs_root {
	struct btrfs_key root_key;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

/* From a process to its open files. */

struct file {
	struct inode *f_inode;
};

struct fdtable {
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	struct files_struct *files;
};

#pragma clang attribute pop

#endif
