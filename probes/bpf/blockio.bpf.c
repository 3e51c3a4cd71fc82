// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Block IO of each cgroup and disk: held back by a limit, queued, served; and the cgroups ahead.
 *
 * An IO is followed by its bio, because the request does not exist yet while it waits for a free tag, and because the
 * submitter is known only then: at completion current is an arbitrary task. A request is identified by its first bio.
 * Each disk counts outstanding bios of its SEATS heaviest users; an IO remembers the counts it found on arrival, and its
 * wait is shared out by those and by what is outstanding when it ends.
 *
 * Sums are shared by all CPUs and added to atomically: IOs are orders of magnitude rarer than switches, and a cgroup's
 * IOs on one disk seldom end on many CPUs at once.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "io_times.h"
#include "maps.bpf.h"
#include "reclaim.bpf.h"

struct gendisk {
	int major;
	int first_minor;
} KERNEL_TYPE;

struct block_device {
	struct gendisk *bd_disk;
} KERNEL_TYPE;

struct blkcg {
	struct cgroup_subsys_state css;
} KERNEL_TYPE;

struct blkcg_gq {
	struct blkcg *blkcg;
} KERNEL_TYPE;

struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
} KERNEL_TYPE;

enum req_flag_bits { __REQ_FUA = 17, __REQ_PREFLUSH = 18, __REQ_SWAP = 23 };

struct bio {
	struct bio *bi_next;
	struct bvec_iter bi_iter;
	unsigned int bi_opf;
	struct block_device *bi_bdev;
	struct blkcg_gq *bi_blkg;
} KERNEL_TYPE;

struct request_queue;

struct request {
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
} KERNEL_TYPE;

struct cgroup_root;

struct cgroup___root {
	struct cgroup_root *root;
} KERNEL_TYPE;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct io);
} ios SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct disk);
} disks SEC(".maps");

struct class_key {
	u32 disk;
	u32 class;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct class_key);
	__type(value, struct usual_times);
} usual SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct blockio_key);
	__type(value, struct blockio_stats);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct blockio_pair);
	__type(value, u64);
} blame SEC(".maps");

/* On cgroup v1: the cpu cgroup of the task that last submitted from a blkio cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u64);
} homes SEC(".maps");

/* By the cgroup whose pages were written to swap, who had that done last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 512);
	__type(key, u64);
	__type(value, u64);
} pushers SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct disk zero_disk;
static const struct blockio_stats zero_stats;
static const struct usual_times no_times;
static const u64 zero;

static __always_inline u32 disk_of(struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;

	return (u32)disk->major << MINOR_BITS | disk->first_minor;
}

static __always_inline bool same_hierarchy(struct task_struct *task, struct cgroup *cgroup)
{
	int cpu_id = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct cgroup___root *by_cpu = (void *)task->cgroups->subsys[cpu_id]->cgroup, *by_io = (void *)cgroup;

	return by_cpu->root == by_io->root;
}

static __always_inline void remember(void *map, u64 cgroup, u64 who)
{
	u64 *known = bpf_map_lookup_elem(map, &cgroup);

	if (!known || *known != who)
		bpf_map_update_elem(map, &cgroup, &who, BPF_ANY);
}

static __always_inline bool is_swap_out(struct bio *bio)
{
	u32 swap = 0;

	if (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_SWAP))
		swap = 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_SWAP);
	return bio->bi_opf & swap && bio->bi_opf & OP_WRITE_BIT;
}

/* Who has a page written to swap, which is not the cgroup on the bio: that lost the page. Under a limit it is the task
 * that takes more; where the whole node is short, the takers of pages, whichever task reclaims. A worker that passes a
 * write on (dm-delay's) does so for who wrote last; 0 where that is not known. */
static __always_inline u64 pusher(struct task_struct *task, u64 on_bio)
{
	struct reclaim_state *state = reclaim_state(task);
	u64 *last, who;

	if (state && !reclaim_target(state)) {
		who = SWAP_OUT_ID;
	} else if (!is_kernel_thread(task)) {
		who = task_cgroup(task);
	} else {
		last = bpf_map_lookup_elem(&pushers, &on_bio);
		return last ? *last : 0;
	}
	remember(&pushers, on_bio, who);
	return who;
}

/* Cgroup of an IO: that of the submitting thread; a kernel thread (writeback, a limit's dispatcher, a loop device)
 * submits for the cgroup on the bio, which on cgroup v1 is known by the task that submitted from there before. */
static __always_inline u64 submitter(struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup_subsys_state *state = &bio->bi_blkg->blkcg->css;
	bool on_v2 = same_hierarchy(task, state->cgroup);
	u64 on_bio = state->cgroup->kn->id, mine, *home;

	if (is_swap_out(bio)) {
		mine = pusher(task, on_bio);
		if (mine)
			return mine;
	}
	if (!is_kernel_thread(task)) {
		mine = task_cgroup(task);
		if (!on_v2 && state->parent)
			remember(&homes, on_bio, mine);
		return mine;
	}
	if (!state->parent)
		return KERNEL_ID;
	if (on_v2)
		return on_bio;
	home = bpf_map_lookup_elem(&homes, &on_bio);
	return home ? *home : KERNEL_ID;
}

static __always_inline struct disk *disk_state(u32 number)
{
	struct disk *disk = lookup_or_init(&disks, &number, &zero_disk);

	if (!disk)
		count_lost(LOST_DISK, 1);
	return disk;
}

static __always_inline struct usual_times *usual_times_of(u32 disk, u32 class)
{
	struct class_key key = {.disk = disk, .class = class};
	struct usual_times *times = lookup_or_init(&usual, &key, &no_times);

	if (!times)
		count_lost(LOST_USUAL, 1);
	return times;
}

static __always_inline struct queued queued(struct bio *bio)
{
	u32 synced = 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA) |
		     1U << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH);

	return (struct queued){
		.sector = bio->bi_iter.bi_sector,
		.bytes = bio->bi_iter.bi_size,
		.synced = bio->bi_opf & synced,
		.operation = bio->bi_opf & OP_MASK,
	};
}

static __always_inline struct blockio_stats *stats_of(struct io *io)
{
	struct blockio_key key = {.cgroup = io->cgroup, .disk = io->disk};
	struct blockio_stats *stats = lookup_or_init(&cgroups, &key, &zero_stats);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

/* The bio is in use again, so its last end went unseen: it must not count as ahead of others any longer. */
static __always_inline void leave_late(struct io *io, u64 now)
{
	struct disk *disk = bpf_map_lookup_elem(&disks, &io->disk);

	if (disk)
		leave_seat(disk, io->seat, io->queued_ns, now);
}

/* A bio enters the block layer: note the time, the cgroup and the bios ahead of it. One that is known to have entered
 * is either noted by the first program just now, or its end was missed. */
static __always_inline int enter(struct bio *bio, bool again)
{
	u64 key = (u64)bio, now = bpf_ktime_get_ns();
	struct io fresh = {.queued_ns = now, .again = again};
	struct io *held = bpf_map_lookup_elem(&ios, &key);
	struct blockio_stats *stats;
	struct queued what;
	struct disk *disk;

	if (again && held && held->queued_ns && !held->again) {
		held->again = true;
		return 0;
	}
	if (held && held->queued_ns)
		leave_late(held, now);
	fresh.disk = disk_of(bio);
	if (held && held->held_ns && !held->queued_ns) {
		fresh.cgroup = held->cgroup;
		stats = stats_of(&fresh);
		if (stats)
			__sync_fetch_and_add(&stats->throttle_ns, now - held->held_ns);
	} else {
		fresh.cgroup = submitter(bio);
	}
	disk = disk_state(fresh.disk);
	if (!disk)
		return 0;
	what = queued(bio);
	queue_io(&fresh, disk, &what, now);
	if (bpf_map_update_elem(&ios, &key, &fresh, BPF_ANY)) {
		count_lost(LOST_IO, 1);
		leave_seat(disk, fresh.seat, now, now);
	}
	return 0;
}

static __always_inline void leave(u64 key, struct io *io, struct disk *disk, u64 now)
{
	if (io->queued_ns && disk)
		leave_seat(disk, io->seat, io->queued_ns, now);
	io->queued_ns = io->held_ns = 0; /* it has left, should the deletion fail */
	bpf_map_delete_elem(&ios, &key);
}

/* Bios merged into a request end with it, without an event of their own. */
static __always_inline void leave_merged(struct bio *bio, struct disk *disk, u64 now)
{
	for (int i = 0; i < MERGED && bio; i++) {
		u64 key = (u64)bio;
		struct io *io = bpf_map_lookup_elem(&ios, &key);

		if (io)
			leave(key, io, disk, now);
		bio = bio->bi_next;
	}
}

GLOBAL_SUBPROGRAM int add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct blockio_pair pair = {.victim = victim, .culprit = culprit};
	u64 *total = lookup_or_init(&blame, &pair, &zero);

	if (total)
		__sync_fetch_and_add(total, ns);
	else
		count_lost(LOST_BLAME_NS, ns);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	return enter(bio, false);
}

/* The front part of a bio too large for one request; the rest keeps the bio. */
SEC("tp_btf/block_split")
int BPF_PROG(on_split, struct bio *bio)
{
	return enter(bio, false);
}

static __always_inline struct io *io_of(struct request *request, u64 *key)
{
	*key = (u64)request->bio;
	return *key ? bpf_map_lookup_elem(&ios, key) : NULL;
}

static __always_inline int issue(struct request *request)
{
	u64 key;
	struct io *io = io_of(request, &key);

	if (io && !io->issued_ns)
		io->issued_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *request)
{
	return issue(request);
}

/* The driver gave the request back: it waits again. */
static __always_inline int requeue(struct request *request)
{
	u64 key;
	struct io *io = io_of(request, &key);

	if (io)
		io->issued_ns = 0;
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(on_requeue, struct request *request)
{
	return requeue(request);
}

/* The second program ignores a part of a request: the first one may have counted it. */
static __always_inline int complete(struct request *request, u32 bytes, bool again)
{
	u64 key, now;
	struct io *io = io_of(request, &key);
	u32 operation = request->cmd_flags & OP_MASK;
	struct blockio_stats *stats;
	struct disk *disk;

	if (!io || !io->queued_ns || (again && bytes < request->__data_len))
		return 0;
	stats = stats_of(io);
	if (!stats)
		return 0;
	add_bytes(stats, operation, bytes);
	if (bytes < request->__data_len)
		return 0;
	now = bpf_ktime_get_ns();
	disk = disk_state(io->disk);
	if (disk)
		account_io(stats, disk, io, operation, bytes, now);
	leave(key, io, disk, now);
	leave_merged(request->bio->bi_next, disk, now);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *request, int error, unsigned int bytes)
{
	return complete(request, bytes, false);
}

/* Bios of drivers without requests, and those that fail before they have one. */
static __always_inline int complete_bio(struct bio *bio)
{
	u64 key = (u64)bio;
	struct io *io = bpf_map_lookup_elem(&ios, &key);

	if (io)
		leave(key, io, bpf_map_lookup_elem(&disks, &io->disk), bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete, struct request_queue *queue, struct bio *bio)
{
	return complete_bio(bio);
}

/* The second programs, for kernels that may switch away from a program: see `again` in probes/probe.py. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue_again, struct bio *bio)
{
	return enter(bio, true);
}

SEC("tp_btf/block_split")
int BPF_PROG(on_split_again, struct bio *bio)
{
	return enter(bio, true);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue_again, struct request *request)
{
	return issue(request);
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(on_requeue_again, struct request *request)
{
	return requeue(request);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete_again, struct request *request, int error, unsigned int bytes)
{
	return complete(request, bytes, true);
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete_again, struct request_queue *queue, struct bio *bio)
{
	return complete_bio(bio);
}

/* A limit (io.max, blkio.throttle) holds the bio back; its dispatcher sends it on through block_bio_queue. */
SEC("fexit/__blk_throtl_bio")
int BPF_PROG(on_hold, struct bio *bio, bool held)
{
	struct io fresh = {};
	u64 key = (u64)bio;

	if (!held)
		return 0;
	fresh.held_ns = bpf_ktime_get_ns();
	fresh.cgroup = submitter(bio);
	if (bpf_map_update_elem(&ios, &key, &fresh, BPF_ANY))
		count_lost(LOST_IO, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
