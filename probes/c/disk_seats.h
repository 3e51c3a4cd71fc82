/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* State of a disk: how many bios each cgroup has outstanding on it, and how long IO takes with nothing ahead.
 *
 * Counts are kept on SEATS seats, each held by one cgroup while it has bios outstanding. Some events go missing (a
 * program is not run again on a CPU where it was interrupted), so a count that has not moved for STALE_SECONDS is taken
 * as mistaken.
 */
#ifndef KOORD_DISK_SEATS_H
#define KOORD_DISK_SEATS_H

#define SEATS 8
#define OTHERS SEATS	 /* the count of cgroups without a seat */
#define STALE_SECONDS 30
#define SIZES 12	 /* log2 classes of 4 KiB units */
#define OP_WRITE_BIT 1

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

/* Outstanding bios of a seat, 0 if the count is mistaken. Without branches, which would multiply the verifier's paths.
 */
static __always_inline u32 outstanding(struct disk *disk, u32 seat, u32 now_s)
{
	s32 count = disk->outstanding[seat], negative = count >> 31;
	s32 fresh = (s32)(now_s - disk->moved_s[seat] - STALE_SECONDS) >> 31;

	asm volatile("" : "+r"(negative)); /* else the compiler makes it a branch */
	return count & ~negative & fresh & 0xffff;
}

static __always_inline void add_outstanding(struct disk *disk, u32 seat, s32 by, u32 now_s)
{
	if (now_s - disk->moved_s[seat] >= STALE_SECONDS)
		disk->outstanding[seat] = 0;
	disk->moved_s[seat] = now_s;
	__sync_fetch_and_add(&disk->outstanding[seat], by);
}

/* Count one more for a cgroup, on its own seat, else on a free one, else among OTHERS; returns the seat. */
SUBPROGRAM u32 take_seat(struct disk *disk, u64 cgroup, u64 now)
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
		add_outstanding(disk, free, 1, seconds(now));
	return free;
}

/* Count one less on a seat that take_seat returned. */
SUBPROGRAM int leave_seat(struct disk *disk, u32 seat, u64 now)
{
	if (seat <= OTHERS)
		add_outstanding(disk, seat, -1, seconds(now));
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

/* Time beyond the usual; learns that from IOs with nothing ahead, and from the fastest where all have some. */
static __always_inline u64 excess(u64 *usual_ns, u64 ns, u32 nothing_ahead)
{
	u64 usual = *usual_ns;

	if (!usual || ns < usual)
		*usual_ns = ns;
	else if (nothing_ahead)
		*usual_ns = usual + (ns - usual) / 8;
	return usual && ns > usual && !nothing_ahead ? ns - usual : 0;
}

#endif
