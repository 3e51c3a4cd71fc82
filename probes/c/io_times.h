/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Times of one block IO, summed for its cgroup and disk, and shared out among the cgroups that were ahead of it.
 *
 * A program that includes this defines add_blame. Sums are shared by all CPUs and added to atomically.
 */
#ifndef KOORD_IO_TIMES_H
#define KOORD_IO_TIMES_H

#include "disk_seats.h"
#include "identity.h"
#include "log2.h"

#define WEIGHTS 16 /* a power of two that holds a weight for each seat */
#define MERGED 256 /* bios looked at in one request */
#define MINOR_BITS 20

#define OP_MASK 0xff
#define OP_DISCARD 3
#define OP_SECURE_ERASE 5
#define OP_WRITE_ZEROES 9

enum lost_place { LOST_IO, LOST_CGROUP, LOST_DISK, LOST_BLAME_NS, LOST_PLACES };

struct io {
	u64 held_ns;   /* when a limit stopped it, 0 if none did */
	u64 queued_ns; /* when it entered the block layer for good, 0 before */
	u64 issued_ns; /* when the driver got it, 0 before */
	u64 cgroup;
	u32 disk;
	u32 seat;
	u32 nothing_ahead;
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
	u64 excess_ns; /* device time beyond the undisturbed one */
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

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns);

/* Note what is ahead of an IO that comes to the disk now, and count it. */
static __always_inline void queue_io(struct io *io, struct disk *disk, u64 now)
{
	u32 total = 0;

	for (int i = 0; i <= OTHERS; i++) {
		io->ahead[i] = outstanding(disk, i, seconds(now));
		total += io->ahead[i];
	}
	io->nothing_ahead = !total;
	io->seat = take_seat(disk, io->cgroup, now);
}

SUBPROGRAM u64 device_excess(struct disk *disk, struct io *io, u32 operation, u32 bytes, u64 device_ns)
{
	u32 class = size_class(operation, bytes);

	return class < 2 * SIZES ? excess(&disk->usual_device_ns[class], device_ns, io->nothing_ahead) : 0;
}

/* Share a wait out by what was outstanding when it began and when it ends; returns the part that is others'. */
SUBPROGRAM u64 share_out(struct disk *disk, struct io *io, u64 wait_ns, u64 now)
{
	u32 weights[WEIGHTS] = {}, total = 0, mine = io->seat;
	u64 others_ns = 0, part, culprit;

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

static __always_inline void add_bytes(struct blockio_stats *stats, u32 operation, u32 bytes)
{
	if (!(operation & OP_WRITE_BIT))
		__sync_fetch_and_add(&stats->read_bytes, bytes);
	else if (operation != OP_DISCARD && operation != OP_SECURE_ERASE && operation != OP_WRITE_ZEROES)
		__sync_fetch_and_add(&stats->write_bytes, bytes);
}

SUBPROGRAM int count_duration(u64 *histogram, u64 ns)
{
	u32 slot = log2_slot(ns);

	if (histogram && slot < SLOTS)
		__sync_fetch_and_add(&histogram[slot], 1);
	return 0;
}

/* Account a request that is done. One that was never issued (an empty flush) spent its time in the device's flush. */
static __always_inline void account_io(struct blockio_stats *stats, struct disk *disk, struct io *io, u32 operation,
				       u32 bytes, u64 now)
{
	u64 issued = io->issued_ns ? io->issued_ns : io->queued_ns;
	u64 queue_ns = issued - io->queued_ns, device_ns = now - issued;
	u64 excess_ns = device_excess(disk, io, operation, bytes, device_ns), others_ns = 0;
	u64 contended_ns = excess_ns + excess(&disk->usual_queue_ns, queue_ns, io->nothing_ahead);

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

#endif
