/*
 * Measures what the I/O of each cgroup waits for, and what its threads wait for.
 *
 * blkio_held has the I/O that io.max holds. blk-throttle queues a bio at the first cgroup
 * above it whose limit is used up, and moves it on to the queue of the parent when that
 * cgroup lets it go. Both call throtl_add_bio_tg, with the lock of the disk's queue held,
 * so that nothing else changes a value of the same disk meanwhile.
 *
 * blkio_waits has the rest: the time of requests, and of threads. A thread waits for one
 * cause at a time, the outermost: its entry in blkio_threads. So the time of the causes
 * adds up to the time of the thread.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define MAX_WAITS 8192 /* cgroups by what they wait for */
#define MAX_THREADS 4096 /* threads that wait at a time */
#define MAX_REQUESTS 8192 /* requests that devices have at a time */

/* What is waited for; Go has the same numbers. */
enum cause {
	CAUSE_LIMIT,
	CAUSE_COST,
	CAUSE_DIRTY,
	CAUSE_DIRTY_CGROUP,
	CAUSE_JOURNAL,
	CAUSE_WRITEBACK,
	CAUSE_QUEUE,
	CAUSE_SCHEDULER,
	CAUSE_DEVICE,
	CAUSE_IO,
	CAUSE_ASYNC,
};

/* What a bio does. */
enum op {
	OP_NONE, /* a thread waits */
	OP_READ,
	OP_DIRECT, /* a write that its thread waits for */
	OP_WRITEBACK, /* another write, mostly of dirty pages */
};

struct key {
	__u64 cgroup; /* ID of the one that waits */
	__u64 by; /* ID of the one that it waits for; 0: none */
	__u32 dev; /* 0: unknown */
	__u16 cause;
	__u16 op;
};

/* Time is in nanoseconds. */
struct held {
	__u64 wall; /* while one bio or more was held */
	__u64 sum; /* of the time of each bio */
	__u64 count; /* bios that were let go */
	__u64 bios; /* held now, of those that this program saw arrive */
	__u64 last; /* when the fields above were computed */
};

struct waited {
	__u64 sum;
	__u64 count;
};

struct thread {
	struct key key;
	__u64 since;
	__u64 pause; /* 1: only until io_schedule_timeout returns */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WAITS);
	__type(key, struct key);
	__type(value, struct held);
} blkio_held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WAITS);
	__type(key, struct key);
	__type(value, struct waited);
} blkio_waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32); /* thread ID */
	__type(value, struct thread);
} blkio_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_REQUESTS);
	__type(key, __u64); /* address of the request */
	__type(value, struct thread);
} blkio_requests SEC(".maps");

struct state {
	__u64 began; /* when all programs were attached; user space sets it */
	__u64 lost; /* waits that were not counted for lack of room */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} blkio_state SEC(".maps");

/* The group whose bio this CPU moves to the parent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} blkio_moves SEC(".maps");

/* User space sets these before the load, and the verifier treats them as constants. */

volatile const __u64 node_threshold = 0; /* a lower threshold of dirty pages is a cgroup's */
volatile const __u64 has_control = 0; /* 1: the tracepoint has a dirty_throttle_control */

static __always_inline void lose(void)
{
	__u32 zero = 0;
	struct state *state = bpf_map_lookup_elem(&blkio_state, &zero);

	if (state)
		__sync_fetch_and_add(&state->lost, 1);
}

static __always_inline __u32 disk_of(struct block_device *part)
{
	return part->bd_disk->part0->bd_dev;
}

static __always_inline __u64 cgroup_of(struct blkcg_gq *blkg)
{
	return blkg->blkcg->css.cgroup->kn->id;
}

/* Direct I/O sets REQ_IDLE, and writeback does not: include/linux/blk_types.h. */
static __always_inline __u16 op_of(const struct bio *bio)
{
	__u32 op = bio->bi_opf;

	if ((op & REQ_OP_MASK) == REQ_OP_READ)
		return OP_READ;
	if (op >> bpf_core_enum_value(enum req_flag_bits, __REQ_IDLE) & 1)
		return OP_DIRECT;
	return OP_WRITEBACK;
}

static __always_inline struct held *held_of(const struct key *key)
{
	struct held new = {}, *held = bpf_map_lookup_elem(&blkio_held, key);

	if (held)
		return held;
	new.last = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&blkio_held, key, &new, BPF_NOEXIST))
		lose();
	return bpf_map_lookup_elem(&blkio_held, key);
}

/* Adds the time since the last change. */
static __always_inline void pass(struct held *held, __u64 now)
{
	if (held->bios) {
		held->wall += now - held->last;
		held->sum += held->bios * (now - held->last);
	}
	held->last = now;
}

SEC("fentry/tg_dispatch_one_bio")
int BPF_PROG(blkio_moving, struct throtl_grp *tg)
{
	__u32 zero = 0;
	__u64 *moving = bpf_map_lookup_elem(&blkio_moves, &zero);

	if (moving)
		*moving = (__u64)tg;
	return 0;
}

SEC("fentry/throtl_add_bio_tg")
int BPF_PROG(blkio_hold, struct bio *bio, struct throtl_qnode *qn, struct throtl_grp *tg)
{
	__u64 *moving, from, now = bpf_ktime_get_ns();
	struct key key = { .cause = CAUSE_LIMIT };
	struct state *state;
	struct held *held;
	__u32 zero = 0;

	key.cgroup = cgroup_of(bio->bi_blkg);
	key.dev = disk_of(bio->bi_bdev);
	key.op = op_of(bio);
	moving = bpf_map_lookup_elem(&blkio_moves, &zero);
	state = bpf_map_lookup_elem(&blkio_state, &zero);
	if (!moving || !state)
		return 0;
	from = *moving;
	*moving = 0;

	/*
	 * A bio that passes a cgroup without being held comes with the node of that cgroup
	 * as well, so the node alone does not tell.
	 */
	if (from && (__u64)qn->tg == from) {
		key.by = cgroup_of(qn->tg->pd.blkg);
		held = held_of(&key);
		if (!held)
			return 0;
		pass(held, now);
		held->count++;
		if (held->bios) {
			held->bios--;
		} else if (state->began) {
			/*
			 * This bio, or one that another was taken for, was held before the
			 * programs were attached, and one or more have been ever since.
			 */
			held->wall = now - state->began;
			held->sum += now - state->began;
		}
	}
	/* The root has no limits, and holds nothing. */
	if (tg->pd.blkg->parent) {
		key.by = cgroup_of(tg->pd.blkg);
		held = held_of(&key);
		if (!held)
			return 0;
		pass(held, now);
		held->bios++;
	}
	return 0;
}

static __always_inline void add(const struct key *key, __u64 since)
{
	__u64 now = bpf_ktime_get_ns(), sum = now > since ? now - since : 0;
	struct waited new = {}, *waited = bpf_map_lookup_elem(&blkio_waits, key);

	if (!waited) {
		bpf_map_update_elem(&blkio_waits, key, &new, BPF_NOEXIST);
		waited = bpf_map_lookup_elem(&blkio_waits, key);
	}
	if (!waited) {
		lose();
		return;
	}
	__sync_fetch_and_add(&waited->sum, sum);
	__sync_fetch_and_add(&waited->count, 1);
}

/* The current thread begins to wait, unless it waits for another cause around this one. */
static __always_inline int begin(__u16 cause, __u64 by, __u32 dev)
{
	__u32 id = bpf_get_current_pid_tgid();
	struct thread new = {}, *outer = bpf_map_lookup_elem(&blkio_threads, &id);

	if (outer && outer->key.cause != cause && !outer->pause)
		return 0;
	new.key.cgroup = bpf_get_current_cgroup_id();
	new.key.by = by;
	new.key.dev = dev;
	new.key.cause = cause;
	new.since = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&blkio_threads, &id, &new, BPF_ANY))
		lose();
	return 0;
}

static __always_inline int end(__u16 cause)
{
	__u32 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&blkio_threads, &id);

	if (!thread || thread->key.cause != cause)
		return 0;
	add(&thread->key, thread->since);
	bpf_map_delete_elem(&blkio_threads, &id);
	return 0;
}

#define END(name, function, cause)                        \
	SEC("fexit/" function) int name(void *ctx) \
	{                                                 \
		return end(cause);                        \
	}

SEC("fentry/io_schedule")
int BPF_PROG(blkio_io)
{
	return begin(CAUSE_IO, 0, 0);
}
END(blkio_io_end, "io_schedule", CAUSE_IO)

SEC("fentry/io_schedule_timeout")
int BPF_PROG(blkio_iotimeout)
{
	__u32 id = bpf_get_current_pid_tgid();
	struct thread *outer = bpf_map_lookup_elem(&blkio_threads, &id);

	return outer && outer->pause ? 0 : begin(CAUSE_IO, 0, 0);
}

SEC("fexit/io_schedule_timeout")
int blkio_iotimeout_end(void *ctx)
{
	__u32 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&blkio_threads, &id);

	return thread && thread->pause ? end(thread->key.cause) : end(CAUSE_IO);
}

/* A thread waits for completions that it asked for: of io_uring, and of Linux AIO. */
SEC("fentry/io_cqring_wait")
int BPF_PROG(blkio_uring)
{
	return begin(CAUSE_ASYNC, 0, 0);
}
END(blkio_uring_end, "io_cqring_wait", CAUSE_ASYNC)

SEC("fentry/read_events")
int BPF_PROG(blkio_aio)
{
	return begin(CAUSE_ASYNC, 0, 0);
}
END(blkio_aio_end, "read_events", CAUSE_ASYNC)

/* io.cost: a bio waits until its cgroup has earned it. */
SEC("fentry/ioc_rqos_throttle")
int BPF_PROG(blkio_cost, void *rqos, struct bio *bio)
{
	return begin(CAUSE_COST, 0, disk_of(bio->bi_bdev));
}
END(blkio_cost_end, "ioc_rqos_throttle", CAUSE_COST)

/* A request waits for one of the tags of the queue. */
SEC("fentry/blk_mq_get_tag")
int BPF_PROG(blkio_tag, struct blk_mq_alloc_data *data)
{
	return begin(CAUSE_QUEUE, 0, data->q->disk->part0->bd_dev);
}
END(blkio_tag_end, "blk_mq_get_tag", CAUSE_QUEUE)

SEC("fentry/balance_dirty_pages")
int BPF_PROG(blkio_dirty, struct bdi_writeback *wb)
{
	return begin(CAUSE_DIRTY, wb->blkcg_css->cgroup->kn->id, 0);
}

SEC("fexit/balance_dirty_pages")
int blkio_dirty_end(void *ctx)
{
	end(CAUSE_DIRTY);
	return end(CAUSE_DIRTY_CGROUP);
}

/*
 * Tells the thresholds of the node from those of a cgroup with less memory. The second
 * argument is the threshold, and since Linux 6.18 a structure that has it.
 */
SEC("tp_btf/balance_dirty_pages")
int blkio_threshold(__u64 *ctx)
{
	__u32 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&blkio_threads, &id);
	__u64 pages;

	if (!thread || thread->pause) {
		/*
		 * balance_dirty_pages was entered before the programs were attached, so its end
		 * is not seen. It can last for many of its pauses.
		 */
		struct bdi_writeback *wb = (void *)ctx[0];

		begin(CAUSE_DIRTY, wb->blkcg_css->cgroup->kn->id, 0);
		thread = bpf_map_lookup_elem(&blkio_threads, &id);
		if (!thread)
			return 0;
		thread->pause = 1;
	}
	if (thread->key.cause != CAUSE_DIRTY)
		return 0;
	if (has_control) {
		struct dirty_throttle_control *control = (void *)ctx[1];

		if (!control)
			return 0;
		pages = control->thresh;
	} else {
		pages = ctx[1];
	}
	if (pages < node_threshold)
		thread->key.cause = CAUSE_DIRTY_CGROUP;
	return 0;
}

/* A commit of the journal of ext4, and of a transaction that waits for one. */
SEC("fentry/jbd2_log_wait_commit")
int BPF_PROG(blkio_commit, struct journal_s *journal)
{
	return begin(CAUSE_JOURNAL, 0, disk_of(journal->j_fs_dev));
}
END(blkio_commit_end, "jbd2_log_wait_commit", CAUSE_JOURNAL)

SEC("fentry/wait_transaction_locked")
int BPF_PROG(blkio_transaction, struct journal_s *journal)
{
	return begin(CAUSE_JOURNAL, 0, disk_of(journal->j_fs_dev));
}
END(blkio_transaction_end, "wait_transaction_locked", CAUSE_JOURNAL)

/* The log of XFS. */
SEC("fentry/xfs_log_force_seq")
int BPF_PROG(blkio_xfs, struct xfs_mount *mount)
{
	return begin(CAUSE_JOURNAL, 0, disk_of(mount->m_super->s_bdev));
}
END(blkio_xfs_end, "xfs_log_force_seq", CAUSE_JOURNAL)

SEC("fentry/folio_wait_writeback")
int BPF_PROG(blkio_writeback, struct folio *folio)
{
	/* Read as a number: the verifier lets nobody test the bits of a pointer that it knows. */
	struct address_space *mapping = BPF_CORE_READ(folio, mapping);

	if (!mapping || (__u64)mapping & MAPPING_FLAGS)
		return begin(CAUSE_WRITEBACK, 0, 0); /* swap */
	return begin(CAUSE_WRITEBACK, BPF_CORE_READ(mapping, host, i_wb, blkcg_css, cgroup, kn, id),
		     BPF_CORE_READ(mapping, host, i_sb, s_bdev, bd_disk, part0, bd_dev));
}
END(blkio_writeback_end, "folio_wait_writeback", CAUSE_WRITEBACK)

SEC("tp_btf/block_rq_issue")
int BPF_PROG(blkio_issue, struct request *rq)
{
	struct thread new = {};
	__u64 key = (__u64)rq;
	struct bio *bio;

	if (!rq)
		return 0;
	bio = rq->bio;
	if (!bio)
		return 0; /* a flush */
	new.key.cgroup = cgroup_of(bio->bi_blkg);
	if (!new.key.cgroup)
		return 0;
	new.key.dev = disk_of(bio->bi_bdev);
	new.key.op = op_of(bio);
	new.key.cause = CAUSE_SCHEDULER;
	if (rq->start_time_ns)
		add(&new.key, rq->start_time_ns);
	new.key.cause = CAUSE_DEVICE;
	new.since = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&blkio_requests, &key, &new, BPF_ANY))
		lose();
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(blkio_complete, struct request *rq)
{
	__u64 key = (__u64)rq;
	struct thread *request = bpf_map_lookup_elem(&blkio_requests, &key);

	if (!request)
		return 0;
	add(&request->key, request->since);
	bpf_map_delete_elem(&blkio_requests, &key);
	return 0;
}
