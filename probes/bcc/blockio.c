// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Block IO as in bpf/blockio.bpf.c, without the private data of the block layer: the cgroup on a bio, and when a limit
 * holds one back. IO that a kernel thread submits (writeback, IO that a limit held) is therefore the kernel's. */
#include <linux/blk-mq.h>
#include "io_times.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
#error the block tracepoints have other arguments before 5.11
#endif

BPF_TABLE("hash", u64, struct io, ios, 16384);
BPF_TABLE("hash", u32, struct disk, disks, 256);
BPF_TABLE("hash", struct blockio_key, struct blockio_stats, cgroups, MAX_CGROUPS);
BPF_TABLE("hash", struct blockio_pair, u64, blame, MAX_PAIRS);
struct class_key {
	u32 disk;
	u32 class;
};

BPF_TABLE("hash", struct class_key, struct usual_times, usual, 1024);
BPF_ARRAY(no_times, struct usual_times, 1);
BPF_ARRAY(zero_disks, struct disk, 1);
BPF_ARRAY(zero_stats, struct blockio_stats, 1);

static __always_inline u32 disk_of(struct bio *bio)
{
	struct block_device *device = PEEK(bio->bi_bdev);
	struct gendisk *disk = PEEK(device->bd_disk);

	return (u32)PEEK(disk->major) << MINOR_BITS | PEEK(disk->first_minor);
}

/* Cgroup of an IO: that of the submitting thread. The one a kernel thread submits for is private to the block layer.
 * What kswapd writes to swap is for those who take pages; what other threads reclaim for is private, too. */
static __always_inline u64 submitter(struct bio *bio)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	u32 flags = PEEK(bio->bi_opf);

	if (flags & REQ_SWAP && flags & OP_WRITE_BIT && PEEK(task->flags) & PF_KSWAPD)
		return SWAP_OUT_ID;
	return is_kernel_thread(task) ? KERNEL_ID : cgroup_of(task);
}

static __always_inline struct disk *disk_state(u32 number)
{
	struct disk *disk = disks.lookup(&number), *none;
	int first = 0;

	if (disk)
		return disk;
	none = zero_disks.lookup(&first);
	if (none)
		disk = disks.lookup_or_try_init(&number, none);
	if (!disk)
		count_lost(LOST_DISK, 1);
	return disk;
}

static __always_inline struct usual_times *usual_times_of(u32 disk, u32 class)
{
	struct class_key key = {.disk = disk, .class = class};
	struct usual_times *times = usual.lookup(&key), *none;
	int first = 0;

	if (times)
		return times;
	none = no_times.lookup(&first);
	if (none)
		times = usual.lookup_or_try_init(&key, none);
	if (!times)
		count_lost(LOST_USUAL, 1);
	return times;
}

static __always_inline struct blockio_stats *stats_of(struct io *io)
{
	struct blockio_key key = {.cgroup = io->cgroup, .disk = io->disk};
	struct blockio_stats *stats = cgroups.lookup(&key), *none;
	int first = 0;

	if (stats)
		return stats;
	none = zero_stats.lookup(&first);
	if (none)
		stats = cgroups.lookup_or_try_init(&key, none);
	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

static __always_inline int enter(struct bio *bio)
{
	u64 key = (u64)bio, now = bpf_ktime_get_ns();
	struct io fresh = {.queued_ns = now};
	u32 opf = PEEK(bio->bi_opf);
	struct queued what = {
		.sector = PEEK(bio->bi_iter.bi_sector),
		.bytes = PEEK(bio->bi_iter.bi_size),
		.synced = opf & (REQ_FUA | REQ_PREFLUSH),
		.operation = opf & OP_MASK,
	};
	struct disk *disk;

	fresh.disk = disk_of(bio);
	fresh.cgroup = submitter(bio);
	disk = disk_state(fresh.disk);
	if (!disk)
		return 0;
	queue_io(&fresh, disk, &what, now);
	if (ios.update(&key, &fresh)) {
		count_lost(LOST_IO, 1);
		leave_seat(disk, fresh.seat, now, now);
	}
	return 0;
}

static __always_inline void leave(u64 key, struct io *io, struct disk *disk, u64 now)
{
	if (io->queued_ns && disk)
		leave_seat(disk, io->seat, io->queued_ns, now);
	ios.delete(&key);
}

static __always_inline void leave_merged(struct bio *bio, struct disk *disk, u64 now)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < MERGED && bio; i++) {
		u64 key = (u64)bio;
		struct io *io = ios.lookup(&key);

		if (io)
			leave(key, io, disk, now);
		bio = PEEK(bio->bi_next);
	}
}

GLOBAL_SUBPROGRAM int add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct blockio_pair pair = {.victim = victim, .culprit = culprit};
	u64 none = 0, *total = blame.lookup_or_try_init(&pair, &none);

	if (total)
		__sync_fetch_and_add(total, ns);
	else
		count_lost(LOST_BLAME_NS, ns);
	return 0;
}

int on_bio_queue(struct bpf_raw_tracepoint_args *ctx)
{
	return enter((struct bio *)ctx->args[0]);
}

int on_split(struct bpf_raw_tracepoint_args *ctx)
{
	return enter((struct bio *)ctx->args[0]);
}

static __always_inline struct io *io_of(struct request *request, u64 *key)
{
	*key = (u64)PEEK(request->bio);
	return *key ? ios.lookup(key) : NULL;
}

int on_issue(struct bpf_raw_tracepoint_args *ctx)
{
	u64 key;
	struct io *io = io_of((struct request *)ctx->args[0], &key);

	if (io)
		io->issued_ns = bpf_ktime_get_ns();
	return 0;
}

int on_requeue(struct bpf_raw_tracepoint_args *ctx)
{
	u64 key;
	struct io *io = io_of((struct request *)ctx->args[0], &key);

	if (io)
		io->issued_ns = 0;
	return 0;
}

int on_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *request = (struct request *)ctx->args[0];
	u32 bytes = ctx->args[2], operation = PEEK(request->cmd_flags) & OP_MASK;
	u64 key, now;
	struct io *io = io_of(request, &key);
	struct blockio_stats *stats;
	struct disk *disk;
	struct bio *first;

	if (!io || !io->queued_ns)
		return 0;
	stats = stats_of(io);
	if (!stats)
		return 0;
	add_bytes(stats, operation, bytes);
	if (bytes < PEEK(request->__data_len))
		return 0;
	now = bpf_ktime_get_ns();
	disk = disk_state(io->disk);
	if (disk)
		account_io(stats, disk, io, operation, bytes, now);
	leave(key, io, disk, now);
	first = PEEK(request->bio);
	leave_merged(PEEK(first->bi_next), disk, now);
	return 0;
}

int on_bio_complete(struct bpf_raw_tracepoint_args *ctx)
{
	u64 key = ctx->args[1];
	struct io *io = ios.lookup(&key);
	u32 number;

	if (!io)
		return 0;
	number = io->disk;
	leave(key, io, disks.lookup(&number), bpf_ktime_get_ns());
	return 0;
}
