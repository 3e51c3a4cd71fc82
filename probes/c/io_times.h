/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Times of one block IO, summed for its cgroup and disk, and shared out among the cgroups that were ahead of it. What is
 * beyond the first second of an IO is not summed: who reads the maps counts that while it grows.
 *
 * A program that includes this defines add_blame and usual_times_of. Sums are shared by all CPUs and added to atomically.
 */
#ifndef KOORD_IO_TIMES_H
#define KOORD_IO_TIMES_H

#include "disk_seats.h"
#include "identity.h"
#include "log2.h"
#include "usual_times.h"

#define WEIGHTS 32 /* a power of two that holds a weight for each seat */
#define MERGED 256 /* bios looked at in one request */
#define MINOR_BITS 20

#define OP_MASK 0xff
#define OP_DISCARD 3
#define OP_SECURE_ERASE 5
#define OP_WRITE_ZEROES 9
#define OP_WRITE_BIT 1

#define LONG_NS 1000000000ULL

/* Longest average time in the queue that is taken for usual where no IO came with nothing ahead yet: a scheduler hands
 * on at once what nothing is ahead of. What the device takes by itself cannot be presumed. */
#define UNDISTURBED_QUEUE_NS 1000000ULL

/* How much longer than usual a disk takes for an IO with nothing ahead before it is said to have stalled. */
#define STALL_RATIO 4

/* Classes of IO, whose times differ by nature: data by direction, sequence and size; what must be on the medium; empty
 * flushes; discards. Then those of the time in the queue. */
#define SIZES 8 /* log2 classes of 4 KiB units */
enum io_class {
	DATA_CLASSES = 0,
	SYNCED_CLASSES = 4 * SIZES,
	FLUSH_CLASS = 5 * SIZES,
	DISCARD_CLASS,
	QUEUE_CLASSES,
};

/* What is known of an IO when it is queued. */
struct queued {
	u64 sector;
	u32 bytes;
	u32 synced; /* flushes the cache of the disk, or goes around it */
	u32 operation;
};

enum lost_place { LOST_IO, LOST_CGROUP, LOST_DISK, LOST_BLAME_NS, LOST_USUAL, LOST_PLACES };

struct io {
	u64 held_ns;   /* when a limit stopped it, 0 if none did */
	u64 queued_ns; /* when it entered the block layer for good, 0 before */
	u64 issued_ns; /* when the driver got it, 0 before */
	u64 cgroup;
	u32 disk;
	u32 seat;
	u16 depth; /* log2 of the IOs ahead */
	u8 synced;
	u8 sequential; /* where the cgroup's last one ended */
	u16 ahead[SEATS + 1];
	u16 again; /* the second program has seen it enter (CO-RE only) */
};

struct blockio_key {
	u64 cgroup;
	u64 disk;
};

struct blockio_stats {
	u64 queue_ns;
	u64 device_ns;
	u64 throttle_ns;
	u64 excess_ns; /* device time beyond what the disk needs by itself */
	u64 self_ns;   /* queue and excess with own IOs ahead, or none */
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

GLOBAL_SUBPROGRAM int add_blame(u64 victim, u64 culprit, u64 ns);

/* Times of a class of IO on a disk, made when absent; NULL when the map is full. */
static __always_inline struct usual_times *usual_times_of(u32 disk, u32 class);

static __always_inline u32 io_class(struct io *io, u32 operation, u32 bytes)
{
	u32 units = bytes >> 12, size = 0;

	for (int i = 0; i < SIZES - 1 && units > 1; i++) {
		units >>= 1;
		size++;
	}
	if (operation == OP_DISCARD || operation == OP_SECURE_ERASE || operation == OP_WRITE_ZEROES)
		return DISCARD_CLASS;
	if (!bytes)
		return FLUSH_CLASS;
	if (io->synced)
		return SYNCED_CLASSES + size;
	return DATA_CLASSES + ((operation & OP_WRITE_BIT) * 2 + io->sequential) * SIZES + size;
}

/* Note what is ahead of an IO that comes to the disk now, and count it. */
static __always_inline void queue_io(struct io *io, struct disk *disk, struct queued *what, u64 now)
{
	u32 total = 0, seat;

	for (int i = 0; i <= OTHERS; i++) {
		io->ahead[i] = outstanding(disk, i, seconds(now));
		total += io->ahead[i];
	}
	io->depth = depth_of(total);
	io->synced = !!what->synced;
	seat = take_seat(disk, io->cgroup, 1 + (what->bytes >> 12), now);
	io->seat = seat;
	seat &= 2 * SEATS - 1;
	asm volatile("" : "+r"(seat)); /* a bound that the verifier cannot lose sight of */
	io->sequential = disk->next_sector[seat] == what->sector;
	disk->next_sector[seat] = what->sector + (what->bytes >> 9);
	if (!total) {
		disk->busy_class = io_class(io, what->operation, what->bytes);
		disk->busy_ns = now;
	}
}

static __always_inline u32 queue_class(struct io *io, u32 operation)
{
	return QUEUE_CLASSES + (io->synced ? 2 : operation & OP_WRITE_BIT);
}

/* Share a wait out by what was outstanding when it began and when it ends; returns the part that is others'. */
GLOBAL_SUBPROGRAM u64 share_out(struct disk *disk, struct io *io, u64 wait_ns, u64 now)
{
	u32 weights[WEIGHTS] = {}, total = 0, mine;
	u64 others_ns = 0, part, culprit;

	if (!disk || !io)
		return 0;

	mine = seat_of(disk, io->seat, io->queued_ns);
	for (int i = 0; i <= OTHERS; i++) {
		weights[i] = outstanding(disk, i, seconds(now)) + io->ahead[i];
		total += weights[i];
	}
	mine &= WEIGHTS - 1;
	asm volatile("" : "+r"(mine)); /* a bound that the verifier cannot lose sight of */
	if (weights[mine]) { /* the IO itself is still outstanding */
		weights[mine]--;
		total--;
	}
	if (!total)
		return 0;
	for (int i = 0; i <= OTHERS; i++) {
		if (!weights[i] || i == mine)
			continue;
		part = wait_ns * weights[i] / total;
		others_ns += part;
		culprit = OTHER_ID;
		if (i < OTHERS && disk->owner_ns[i] <= io->queued_ns)
			culprit = disk->cgroups[i];
		add_blame(io->cgroup, culprit, part);
	}
	return others_ns;
}

/* How long a disk has ended nothing of what it got when idle before that is a stall of its own; never where too little
 * is known of it. */
static __always_inline u64 stall_ns(struct disk *disk, u32 number)
{
	struct usual_times *usual = usual_times_of(number, disk->busy_class);

	if (!usual || usual->depths[0].count < FEWEST)
		return ~0ULL;
	return STALL_RATIO * (usual->depths[0].usual.mean >> FRACTION_BITS);
}

/* An IO ends. Where it is the first one since the disk was idle, and late for one that had nothing ahead, the disk has
 * stalled all that time: what was ahead of those that came meanwhile had not been served either. */
static __always_inline void note_end(struct disk *disk, u32 number, u64 now)
{
	u64 busy_ns = disk->busy_ns;

	if (disk->ended_ns < busy_ns && busy_ns < now && now - busy_ns > stall_ns(disk, number)) {
		disk->stalled_from_ns = busy_ns;
		disk->stalled_until_ns = now;
	}
	disk->ended_ns = now;
}

/* Whether an IO found others ahead for the reason that the disk had stalled. Such waits say nothing about those ahead,
 * and where IOs seldom meet, most that find another ahead are of this kind. */
static __always_inline bool came_in_a_stall(struct disk *disk, struct io *io)
{
	return io->depth && io->queued_ns >= disk->stalled_from_ns && io->queued_ns < disk->stalled_until_ns;
}

static __always_inline void add_bytes(struct blockio_stats *stats, u32 operation, u32 bytes)
{
	if (!(operation & OP_WRITE_BIT))
		__sync_fetch_and_add(&stats->read_bytes, bytes);
	else if (operation != OP_DISCARD && operation != OP_SECURE_ERASE && operation != OP_WRITE_ZEROES)
		__sync_fetch_and_add(&stats->write_bytes, bytes);
}

static __always_inline void count_duration(u64 *histogram, u64 ns)
{
	u32 slot = log2_slot(ns);

	if (slot < SLOTS)
		__sync_fetch_and_add(&histogram[slot], 1);
}

/* Account a request that is done. One that was never issued (an empty flush) spent its time in the device's flush. */
static __always_inline void account_io(struct blockio_stats *stats, struct disk *disk, struct io *io, u32 operation,
				       u32 bytes, u64 now)
{
	u64 issued = io->issued_ns ? io->issued_ns : io->queued_ns;
	u64 queue_ns = issued - io->queued_ns, device_ns = now - issued;
	u64 excess_ns = 0, contended_ns = 0, others_ns = 0;

	count_duration(stats->queue_hist, queue_ns);
	count_duration(stats->device_hist, device_ns);
	note_end(disk, io->disk, now);
	if (queue_ns > LONG_NS)
		queue_ns = LONG_NS;
	if (device_ns > LONG_NS - queue_ns)
		device_ns = LONG_NS - queue_ns;
	if (!came_in_a_stall(disk, io)) {
		excess_ns = excess(usual_times_of(io->disk, io_class(io, operation, bytes)), io->depth, device_ns,
				   seconds(now), 0);
		contended_ns = excess(usual_times_of(io->disk, queue_class(io, operation)), io->depth, queue_ns,
				      seconds(now), UNDISTURBED_QUEUE_NS);
		contended_ns += excess_ns;
	}
	if (contended_ns)
		others_ns = share_out(disk, io, contended_ns, now);
	__sync_fetch_and_add(&stats->queue_ns, queue_ns);
	__sync_fetch_and_add(&stats->device_ns, device_ns);
	if (excess_ns)
		__sync_fetch_and_add(&stats->excess_ns, excess_ns);
	__sync_fetch_and_add(&stats->self_ns, queue_ns + excess_ns - others_ns);
	__sync_fetch_and_add(&stats->ios, 1);
}

#endif
