/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* State of a disk: how many bios each cgroup has outstanding on it.
 *
 * Counts are kept on SEATS seats, each held by one cgroup. A newcomer takes a seat that has nothing outstanding, else
 * it wears down the seat with the least IO lately and takes that once it is lighter than the newcomer's IO
 * (Misra and Gries, Finding repeated elements, 1982): the heaviest users of a disk are named, however many there are.
 * Some events go missing (a program is not run again on a CPU where it was interrupted), so a count that has not moved
 * for STALE_SECONDS is taken as mistaken. Who reads the maps may delete the state of a disk at any time to have its
 * counts begin anew.
 */
#ifndef KOORD_DISK_SEATS_H
#define KOORD_DISK_SEATS_H

#define SEATS 16
#define OTHERS SEATS /* the count of cgroups without a seat */
#define STALE_SECONDS 30
#define MOST_UNITS 16384 /* that a seat remembers */
#define HELD_WEIGHT 4	 /* IO of a seat's holder weighs that much more than that of newcomers, which are many */

struct disk {
	s32 outstanding[SEATS + 1]; /* may dip below zero after a missed event */
	u32 moved_s[SEATS + 1];	    /* last change of the count, in seconds */
	u32 units[SEATS];	    /* of 4 KiB of IO, weighted, worn down by newcomers */
	u64 cgroups[SEATS];
	u64 owner_ns[SEATS]; /* when the cgroup took the seat */
	u64 next_sector[2 * SEATS]; /* after the last IO of each seat; as many as a mask bounds */
	u64 ended_ns; /* when an IO ended last */
	u64 since_ns; /* when its first IO came: those that came before are not counted */
	u64 busy_ns; /* when an IO came last with nothing ahead */
	u64 stalled_from_ns; /* the last stall: see note_end() */
	u64 stalled_until_ns;
	u32 busy_class; /* of the IO at busy_ns */
	u32 padding;
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
	/* Signed: another CPU may have moved it in a second that has not begun here. */
	if ((s32)(now_s - disk->moved_s[seat]) >= STALE_SECONDS)
		disk->outstanding[seat] = 0;
	disk->moved_s[seat] = now_s;
	__sync_fetch_and_add(&disk->outstanding[seat], by);
}

/* Count one more for a cgroup, on its own seat, else on a free one or the lightest, else among OTHERS; returns the
 * seat. The bios of a cgroup that loses its seat are outstanding among OTHERS from then on. */
GLOBAL_SUBPROGRAM u32 take_seat(struct disk *disk, u64 cgroup, u32 units, u64 now)
{
	u32 seat = OTHERS, lightest = 0, least = MOST_UNITS + 1, free = OTHERS;
	s32 moved;

	if (!disk)
		return OTHERS;
	if (!disk->since_ns)
		disk->since_ns = now;
	for (u32 i = 0; i < SEATS; i++) {
		u32 index = (cgroup + i) & (SEATS - 1);

		if (disk->cgroups[index] == cgroup) {
			seat = index;
			break;
		}
		if (free == OTHERS && disk->outstanding[index] <= 0)
			free = index;
		if (disk->units[index] < least) {
			least = disk->units[index];
			lightest = index;
		}
	}
	if (units > MOST_UNITS / HELD_WEIGHT)
		units = MOST_UNITS / HELD_WEIGHT;
	if (seat == OTHERS) {
		lightest &= SEATS - 1;
		if (free < SEATS) {
			seat = free;
		} else if (least < units) {
			moved = disk->outstanding[lightest];
			__sync_fetch_and_add(&disk->outstanding[lightest], -moved);
			add_outstanding(disk, OTHERS, moved, seconds(now));
			seat = lightest;
		} else {
			disk->units[lightest] = least - units;
		}
		if (seat < SEATS) {
			disk->owner_ns[seat] = now;
			disk->cgroups[seat] = cgroup;
			disk->units[seat] = 0;
			if (disk->outstanding[seat] < 0) /* of events that its last owner missed */
				disk->outstanding[seat] = 0;
		}
	}
	if (seat < SEATS && disk->units[seat] + HELD_WEIGHT * units <= MOST_UNITS)
		disk->units[seat] += HELD_WEIGHT * units;
	if (seat <= OTHERS)
		add_outstanding(disk, seat, 1, seconds(now));
	return seat;
}

/* The seat on which a bio counts: that of its cgroup, unless another cgroup took it since. */
static __always_inline u32 seat_of(struct disk *disk, u32 seat, u64 queued_ns)
{
	return seat < SEATS && disk->owner_ns[seat] <= queued_ns ? seat : OTHERS;
}

/* Count one less for a bio that took this seat when it was queued. */
GLOBAL_SUBPROGRAM int leave_seat(struct disk *disk, u32 seat, u64 queued_ns, u64 now)
{
	if (disk && disk->since_ns && queued_ns >= disk->since_ns)
		add_outstanding(disk, seat_of(disk, seat, queued_ns), -1, seconds(now));
	return 0;
}

#endif
