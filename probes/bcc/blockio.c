// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Block IO as in bpf/blockio.bpf.c, without what only the block layer knows: the cgroup on a bio, and when a limit holds
 * one back. What a kernel thread submits (writeback, IO that a limit held) is therefore the kernel's. */
#include <linux/blk-mq.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
#error the block tracepoints have other arguments before 5.11
#endif

#define WEIGHTS 16
#define MERGED 256
#define MINOR_BITS 20

#define OP_MASK 0xff
#define OP_DISCARD 3
#define OP_SECURE_ERASE 5
#define OP_WRITE_ZEROES 9

#define SEATS 8
#define OTHERS SEATS
#define STALE_SECONDS 30
#define SIZES 12
#define OP_WRITE_BIT 1

struct io {
	u64 held_ns;
	u64 queued_ns;
	u64 issued_ns;
	u64 cgroup;
	u32 disk;
	u32 seat;
	u32 nobody_ahead;
	u16 ahead[SEATS + 1];
	u16 pad;
};

struct disk {
	s32 outstanding[SEATS + 1];
	u32 moved_s[SEATS + 1];
	u64 cgroups[SEATS];
	u64 owner_ns[SEATS];
	u64 usual_queue_ns;
	u64 usual_device_ns[2 * SIZES];
};

enum lost_place { LOST_IO, LOST_CGROUP, LOST_DISK, LOST_BLAME_NS };

struct blockio_key {
	u64 cgroup;
	u64 disk;
};

struct blockio_stats {
	u64 queue_ns;
	u64 device_ns;
	u64 throttle_ns;
	u64 excess_ns;
	u64 self_ns;
	u64 ios;
	u64 read_bytes;
	u64 write_bytes;
	u64 queue_hist[SLOTS];
	u64 device_hist[SLOTS];
};

struct blockio_pair {
	u64 victim;
	u64 culprit;
};

BPF_TABLE("hash", u64, struct io, ios, 16384);
BPF_TABLE("hash", u32, struct disk, disks, 256);
BPF_TABLE("hash", struct blockio_key, struct blockio_stats, cgroups, MAX_CGROUPS);
BPF_TABLE("hash", struct blockio_pair, u64, blame, MAX_PAIRS);
BPF_ARRAY(zero_disks, struct disk, 1);
BPF_ARRAY(zero_stats, struct blockio_stats, 1);

static __always_inline u32 seconds(u64 ns)
{
	return ns / 1000000000;
}

/* Outstanding bios of a seat, 0 if the count is mistaken. Without branches, which would multiply the verifier's paths. */
static __always_inline u32 outstanding(struct disk *disk, u32 seat, u32 now_s)
{
	s32 count = disk->outstanding[seat], negative = count >> 31;
	s32 fresh = (s32)(now_s - disk->moved_s[seat] - STALE_SECONDS) >> 31;

	asm volatile("" : "+r"(negative)); /* else the compiler makes it a branch */
	return count & ~negative & fresh & 0xffff;
}

static __always_inline void move(struct disk *disk, u32 seat, s32 by, u32 now_s)
{
	if (now_s - disk->moved_s[seat] >= STALE_SECONDS)
		disk->outstanding[seat] = 0;
	disk->moved_s[seat] = now_s;
	__sync_fetch_and_add(&disk->outstanding[seat], by);
}

/* Count one more for a cgroup, on its own seat, else on a free one, else among OTHERS; returns the seat. */
static __always_inline u32 sit_down(struct disk *disk, u64 cgroup, u64 now)
{
	u32 free = OTHERS;

	for (u32 i = 0; i < SEATS; i++) {
		u32 index = (cgroup + i) & (SEATS - 1);

		if (disk->cgroups[index] == cgroup) {
			free = index;
			break;
		}
		if (free == OTHERS && disk->outstanding[index] <= 0)
			free = index;
	}
	if (free < SEATS && disk->cgroups[free] != cgroup) {
		disk->owner_ns[free] = now;
		disk->cgroups[free] = cgroup;
	}
	if (free <= OTHERS)
		move(disk, free, 1, seconds(now));
	return free;
}

static __always_inline int stand_up(struct disk *disk, u32 seat, u64 now)
{
	if (seat <= OTHERS)
		move(disk, seat, -1, seconds(now));
	return 0;
}

static __always_inline u32 size_class(u32 operation, u32 bytes)
{
	u32 units = bytes >> 12, class = 0;

	for (int i = 0; i < SIZES - 1 && units > 1; i++) {
		units >>= 1;
		class++;
	}
	return (operation & OP_WRITE_BIT) * SIZES + class;
}

/* What `ns` is beyond the usual; learns that from IOs with nothing ahead, and from the fastest where all have some. */
static __always_inline u64 beyond(u64 *usual_ns, struct io *io, u64 ns)
{
	u64 usual = *usual_ns;

	if (!usual || ns < usual)
		*usual_ns = ns;
	else if (io->nobody_ahead)
		*usual_ns = usual + (ns - usual) / 8;
	return usual && ns > usual && !io->nobody_ahead ? ns - usual : 0;
}

static __always_inline u64 device_excess(struct disk *disk, struct io *io, u32 operation, u32 bytes, u64 device_ns)
{
	u32 class = size_class(operation, bytes);

	return class < 2 * SIZES ? beyond(&disk->usual_device_ns[class], io, device_ns) : 0;
}

static __always_inline u32 disk_of(struct bio *bio)
{
	struct block_device *device = PEEK(bio->bi_bdev);
	struct gendisk *disk = PEEK(device->bd_disk);

	return (u32)PEEK(disk->major) << MINOR_BITS | PEEK(disk->first_minor);
}

/* Whose IO this is: a thread that submits for itself tells. For whom a kernel thread does is private to the block layer. */
static __always_inline u64 submitter(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

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
	struct disk *disk;
	u32 total = 0;

	fresh.disk = disk_of(bio);
	fresh.cgroup = submitter();
	disk = disk_state(fresh.disk);
	if (!disk)
		return 0;
	for (int i = 0; i <= OTHERS; i++) {
		fresh.ahead[i] = outstanding(disk, i, seconds(now));
		total += fresh.ahead[i];
	}
	fresh.nobody_ahead = !total;
	fresh.seat = sit_down(disk, fresh.cgroup, now);
	if (ios.update(&key, &fresh)) {
		count_lost(LOST_IO, 1);
		stand_up(disk, fresh.seat, now);
	}
	return 0;
}

static __always_inline void leave(u64 key, struct io *io, struct disk *disk, u64 now)
{
	if (io->queued_ns && disk)
		stand_up(disk, io->seat, now);
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

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct blockio_pair pair = {.victim = victim, .culprit = culprit};
	u64 none = 0, *total = blame.lookup_or_try_init(&pair, &none);

	if (total)
		__sync_fetch_and_add(total, ns);
	else
		count_lost(LOST_BLAME_NS, ns);
}

static __always_inline u64 share_out(struct disk *disk, struct io *io, u64 wait_ns, u64 now)
{
	u32 weights[WEIGHTS] = {}, total = 0, mine = io->seat;
	u64 others_ns = 0, part, who;

	for (int i = 0; i <= OTHERS; i++) {
		weights[i] = outstanding(disk, i, seconds(now)) + io->ahead[i];
		total += weights[i];
	}
	for (int i = 0; i <= OTHERS; i++) {
		if (i == mine && weights[i]) { /* the IO itself is still outstanding */
			weights[i]--;
			total--;
		}
	}
	if (!total)
		return 0;
	for (int i = 0; i <= OTHERS; i++) {
		if (!weights[i] || i == mine)
			continue;
		part = wait_ns * weights[i] / total;
		others_ns += part;
		who = OTHER_ID;
		if (i < OTHERS && disk->owner_ns[i] <= io->queued_ns)
			who = disk->cgroups[i];
		add_blame(io->cgroup, who, part);
	}
	return others_ns;
}

static __always_inline void add_bytes(struct blockio_stats *stats, u32 operation, u32 bytes)
{
	if (!(operation & OP_WRITE_BIT))
		__sync_fetch_and_add(&stats->read_bytes, bytes);
	else if (operation != OP_DISCARD && operation != OP_SECURE_ERASE && operation != OP_WRITE_ZEROES)
		__sync_fetch_and_add(&stats->write_bytes, bytes);
}

static __always_inline int count_duration(u64 *histogram, u64 ns)
{
	u32 slot = log2_slot(ns);

	if (histogram && slot < SLOTS)
		__sync_fetch_and_add(&histogram[slot], 1);
	return 0;
}

static __always_inline void finish(struct blockio_stats *stats, struct disk *disk, struct io *io, u32 operation,
				   u32 bytes, u64 now)
{
	u64 issued = io->issued_ns ? io->issued_ns : io->queued_ns;
	u64 queue_ns = issued - io->queued_ns, device_ns = now - issued;
	u64 excess_ns = device_excess(disk, io, operation, bytes, device_ns);
	u64 contended_ns = excess_ns + beyond(&disk->usual_queue_ns, io, queue_ns), others_ns = 0;

	if (contended_ns)
		others_ns = share_out(disk, io, contended_ns, now);
	__sync_fetch_and_add(&stats->queue_ns, queue_ns);
	__sync_fetch_and_add(&stats->device_ns, device_ns);
	if (excess_ns)
		__sync_fetch_and_add(&stats->excess_ns, excess_ns);
	__sync_fetch_and_add(&stats->self_ns, queue_ns + excess_ns - others_ns);
	__sync_fetch_and_add(&stats->ios, 1);
	count_duration(stats->queue_hist, queue_ns);
	count_duration(stats->device_hist, device_ns);
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
		finish(stats, disk, io, operation, bytes, now);
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
