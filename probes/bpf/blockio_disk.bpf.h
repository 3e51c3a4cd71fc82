/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the blockio probe knows of a disk: whose bios are outstanding on it, and how long IO takes with nothing ahead.
 *
 * Counts stand on SEATS seats, each held by one cgroup while it has bios outstanding. Some events go missing (a program
 * is not run again on a CPU where it was interrupted), so a count that has not moved for long is taken as mistaken.
 */
#ifndef KOORD_BLOCKIO_DISK_BPF_H
#define KOORD_BLOCKIO_DISK_BPF_H

#include "kernel.bpf.h"

#define SEATS 8
#define OTHERS SEATS	 /* those without a seat */
#define STALE_SECONDS 30 /* a count that has not moved for so long is mistaken */
#define SIZES 12	 /* log2 classes of 4 KiB units */
#define OP_WRITE_BIT 1

struct io {
	u64 held_ns;   /* when a limit stopped it, 0 if none did */
	u64 queued_ns; /* when it entered the block layer for good, 0 before */
	u64 issued_ns; /* when the driver got it, 0 before */
	u64 cgroup;
	u32 disk;
	u32 seat;
	u32 nobody_ahead;
	u16 ahead[SEATS + 1];
	u16 again; /* the second program has seen it enter */
};

struct disk {
	s32 outstanding[SEATS + 1]; /* may dip below zero after a missed event */
	u32 moved_s[SEATS + 1];	    /* last change of the count, in seconds */
	u64 cgroups[SEATS];
	u64 owner_ns[SEATS]; /* when the cgroup took the seat */
	u64 usual_queue_ns;  /* of an IO with nothing ahead */
	u64 usual_device_ns[2 * SIZES];
};

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
static __noinline u32 sit_down(struct disk *disk, u64 cgroup, u64 now)
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

static __noinline int stand_up(struct disk *disk, u32 seat, u64 now)
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

static __noinline u64 device_excess(struct disk *disk, struct io *io, u32 operation, u32 bytes, u64 device_ns)
{
	u32 class = size_class(operation, bytes);

	return class < 2 * SIZES ? beyond(&disk->usual_device_ns[class], io, device_ns) : 0;
}

#endif
