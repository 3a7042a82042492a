/*
 * Counts what each cgroup writes to the files of watched filesystems.
 *
 * blkio_dirtied runs for each folio that becomes dirty in the page cache. Folios mostly
 * come many of one file in a row, so each CPU counts in a slot of its own as long as the
 * file, the writer and the charged cgroup stay the same. It adds the slot to the map
 * blkio_counts when they change. A map lookup for each folio would take three times as
 * long.
 *
 * User space runs blkio_flush on each CPU whose slot is in use, and then reads and
 * empties blkio_counts.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define MAX_WATCHED 4096      /* filesystems; a node has some hundred volumes */
#define MAX_WRITERS (1 << 12) /* cgroups that write between two reads */

#define MEMCG_DATA_FLAGS 7UL  /* include/linux/memcontrol.h */
#define FOLIO_ORDER_MASK 0x1f /* the order is 10, or little more, at most */
#define BTRFS_SUPER_MAGIC 0x9123683E
#define BTRFS_ROOT_TREE 1 /* subvolume of the inodes of btrfs's own metadata */
#define ROOT_CGROUP 1	  /* ID of the root of cgroupfs, where kernel threads are */

/* Identifies a count. */
struct count_key {
	__u64 inode; /* address; 0 in a flushed slot */
	__u64 number;
	__u64 writer; /* cgroup ID */
	__u64 memcg; /* folio->memcg_data without its flags */
};

/* A count. Fields that are the same for all pages of a key are looked up once. */
struct count {
	__u64 pages;
	__u64 charged; /* cgroup ID; 0: unknown */
	__u64 owner; /* cgroup ID; 0: none yet */
	__u64 root; /* btrfs: subvolume ID */
	__u32 dev;
	__u32 generation;
	__u64 first; /* page range; may miss some pages */
	__u64 last;
};

struct slot {
	struct count_key key;
	struct count value;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_WATCHED);
	__type(key, __u32); /* super_block.s_dev */
	__type(value, __u8);
} blkio_watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} blkio_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* user space sets it to max_counts */
	__type(key, struct count_key);
	__type(value, struct count);
} blkio_counts SEC(".maps");

/* How many counts were added since the last read ... */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} blkio_taken SEC(".maps");

/* ... and how many of them by each writer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_WRITERS);
	__type(key, __u64); /* cgroup ID */
	__type(value, __u64);
} blkio_writers SEC(".maps");

/* Pages that no count had room for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} blkio_lost SEC(".maps");

/* How often the alarm still rings; user space sets it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} blkio_alarm SEC(".maps");

/* The writers that the alarm has rung for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* user space sets it to how often a set alarm rings */
	__type(key, __u64); /* cgroup ID */
	__type(value, __u64);
} blkio_rung SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* user space sets it to the size of a page */
} blkio_rings SEC(".maps");

/* User space sets these before the load, and the verifier treats them as constants. */

/* Counts between two reads: files, by writer. */
volatile const __u64 max_counts = 0;

/*
 * The counts that each writer is sure to get. Half of the room is for writers with fewer
 * of them, so that a writer with many files leaves room for others.
 */
volatile const __u64 few_counts = 0;

/* The size of a folio in pages: folio_order() in include/linux/mm.h. */
static __always_inline __u64 folio_pages(struct folio *folio)
{
	struct folio___6_18 *folio_6_18 = (void *)folio;
	struct folio___6_17 *folio_6_17 = (void *)folio;
	struct folio___6_5 *folio_6_5 = (void *)folio;
	unsigned long flags;
	__u64 order;

	if (!bpf_core_enum_value_exists(enum pageflags, PG_head))
		return 1;
	if (bpf_core_field_exists(struct folio___6_18, flags.f))
		flags = folio_6_18->flags.f;
	else
		flags = folio_6_17->flags;
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;

	if (bpf_core_field_exists(struct folio___6_5, _folio_order))
		order = folio_6_5->_folio_order;
	else if (bpf_core_field_exists(struct folio, _flags_1))
		order = folio->_flags_1;
	else
		return 1;
	return 1ULL << (order & FOLIO_ORDER_MASK);
}

/* The ID of the cgroup that memcg_data charges a folio to; 0 if it charges none. */
static __always_inline __u64 charged_cgroup(__u64 memcg_data)
{
	struct mem_cgroup *memcg = (void *)memcg_data;

	/*
	 * Since Linux 7.1 it points to an obj_cgroup, which the kernel points to the
	 * parent when the cgroup is removed (memcg_reparent_objcgs in mm/memcontrol.c).
	 * BTF may lack that function if it is inlined, but has this field.
	 */
	if (bpf_core_field_exists(struct mem_cgroup_per_node___7_1, objcg))
		memcg = BPF_CORE_READ((struct obj_cgroup *)memcg_data, memcg);
	return BPF_CORE_READ(memcg, css.cgroup, kn, id);
}

/*
 * The ID of the inode's btrfs subvolume, which its number means nothing without: 0 on
 * other filesystems, and if the types of btrfs are unknown. Source: btrfs_encode_fh in
 * fs/btrfs/export.c.
 */
static __always_inline __u64 subvolume(struct inode *inode)
{
	struct btrfs_inode *btrfs;

	if (!bpf_core_field_exists(struct btrfs_inode, root) ||
	    !bpf_core_field_exists(struct btrfs_inode, vfs_inode) ||
	    !bpf_core_field_exists(struct btrfs_root, root_key.objectid))
		return 0;
	if (inode->i_sb->s_magic != BTRFS_SUPER_MAGIC)
		return 0;
	btrfs = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	return BPF_CORE_READ(btrfs, root, root_key.objectid);
}

/*
 * Makes the slot's count, if its writer gets one more. Returns 0 if it did; -1 if there is
 * no room for the writer, or if another CPU was first.
 */
static __always_inline int make_count(const struct slot *slot, const struct count *count)
{
	__u64 *taken, *own, one = 1;
	__u32 zero = 0;

	taken = bpf_map_lookup_elem(&blkio_taken, &zero);
	if (!taken)
		return -1;
	own = bpf_map_lookup_elem(&blkio_writers, &slot->key.writer);
	if (own && *own >= few_counts && *taken >= max_counts / 2)
		return -1;
	if (bpf_map_update_elem(&blkio_counts, &slot->key, count, BPF_NOEXIST))
		return -1;

	__sync_fetch_and_add(taken, 1);
	if (own)
		__sync_fetch_and_add(own, 1);
	else
		bpf_map_update_elem(&blkio_writers, &slot->key.writer, &one, BPF_ANY);
	return 0;
}

/*
 * Adds the slot's pages to their count.
 *
 * blkio_flush may interrupt blkio_dirtied on its CPU. One instruction takes the pages
 * out of the slot and one adds to them, so the interrupting program sees all of them or
 * none; with none, no other field of the slot counts.
 */
static __always_inline void flush(struct slot *slot)
{
	struct count new, *count;
	__u64 pages, *lost;
	__u32 zero = 0;

	pages = __sync_lock_test_and_set(&slot->value.pages, 0);
	if (!pages)
		return;
	new = slot->value;
	new.pages = pages;
	slot->value.first = -1;
	slot->value.last = 0;

	count = bpf_map_lookup_elem(&blkio_counts, &slot->key);
	if (!count) {
		if (!make_count(slot, &new))
			return;
		count = bpf_map_lookup_elem(&blkio_counts, &slot->key);
	}
	if (!count) {
		lost = bpf_map_lookup_elem(&blkio_lost, &zero);
		if (lost)
			__sync_fetch_and_add(lost, pages);
		return;
	}
	__sync_fetch_and_add(&count->pages, pages);
	/* CPUs that do this at the same time may lose a part of the range. */
	if (new.first < count->first)
		count->first = new.first;
	if (new.last > count->last)
		count->last = new.last;
}

/* Lets a flushed slot count another file, writer or charge. */
static __always_inline void begin(struct slot *slot, struct folio *folio, struct inode *inode,
				  const struct count_key *key)
{
	slot->key = *key;
	slot->value.first = folio->index;
	slot->value.last = folio->index;
	slot->value.dev = inode->i_sb->s_dev;
	slot->value.generation = inode->i_generation;
	slot->value.charged = charged_cgroup(key->memcg);
	/* Any of these pointers may be null; a null pointer reads as 0. */
	slot->value.owner = inode->i_wb->memcg_css->cgroup->kn->id;
	slot->value.root = subvolume(inode);
}

/*
 * Rings the alarm if the writer is not the file's owner: once for each writer, a few
 * times until user space sets it again. A kernel thread that writes for the owner, and
 * metadata of btrfs, do not ring.
 */
static __always_inline void ring(struct slot *slot)
{
	__u64 *left, value;
	__u32 zero = 0;

	if (!slot->value.owner || slot->value.owner == slot->key.writer ||
	    slot->value.root == BTRFS_ROOT_TREE)
		return;
	if (slot->key.writer == ROOT_CGROUP && slot->value.owner == slot->value.charged)
		return;
	/* While it is 0, CPUs share this cache line. */
	left = bpf_map_lookup_elem(&blkio_alarm, &zero);
	if (!left || !*left)
		return;
	value = *left;
	if (bpf_map_update_elem(&blkio_rung, &slot->key.writer, &value, BPF_NOEXIST))
		return; /* it has rung for this writer, or for enough others */
	__sync_fetch_and_add(left, -1);
	bpf_ringbuf_output(&blkio_rings, slot, sizeof(*slot), 0);
}

/*
 * Runs before folio_account_dirtied (mm/page-writeback.c) gives an inode without an
 * owner to one, with preemption disabled. The part for all folios is short.
 */
SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(blkio_dirtied, struct folio *folio, struct address_space *mapping)
{
	struct count_key key;
	struct inode *inode;
	struct slot *slot;
	__u32 zero = 0, dev;
	__u64 index;

	/* Since Linux 6.13 the verifier requires these checks. */
	if (!folio || !mapping)
		return 0;
	inode = mapping->host;
	key.inode = (__u64)inode;
	key.number = inode->i_ino;
	key.memcg = folio->memcg_data & ~MEMCG_DATA_FLAGS;
	key.writer = bpf_get_current_cgroup_id();
	slot = bpf_map_lookup_elem(&blkio_slots, &zero);
	if (!slot)
		return 0;

	if (slot->key.inode != key.inode || slot->key.number != key.number ||
	    slot->key.writer != key.writer || slot->key.memcg != key.memcg) {
		dev = inode->i_sb->s_dev;
		if (!bpf_map_lookup_elem(&blkio_watched, &dev))
			return 0;
		flush(slot);
		begin(slot, folio, inode, &key);
		ring(slot);
	}
	/* The range comes first: a flush may see it without the pages. */
	index = folio->index;
	if (index < slot->value.first)
		slot->value.first = index;
	if (index > slot->value.last)
		slot->value.last = index;
	__sync_fetch_and_add(&slot->value.pages, folio_pages(folio));
	return 0;
}

/* User space runs it on a CPU, to flush that CPU's slot. */
SEC("raw_tp")
int blkio_flush(void *ctx)
{
	__u32 zero = 0;
	struct slot *slot = bpf_map_lookup_elem(&blkio_slots, &zero);

	if (!slot)
		return 0;
	flush(slot);
	/*
	 * The next page begins anew and looks up the file's owner again. This field
	 * identifies no count, so it does not matter if one is interrupted.
	 */
	slot->key.inode = 0;
	return 0;
}
