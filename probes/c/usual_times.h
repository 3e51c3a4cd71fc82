/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How long IO of one class takes on one disk, by the number of IOs ahead of it when it came.
 *
 * A disk is slow at times by itself, so a slow IO with others ahead says nothing. Averages do: IOs that came to a busy
 * disk are compared with those that came when the least was ahead. An average counts as longer when it is by a fifth,
 * and by three times the standard error of the difference; then each IO has lost the part by which the average grew.
 * A few dozen IOs show at once what all of them suffer, a thousand what one in a hundred does. Of a disk that is busy
 * soon after the first look at it only a few IOs came with nothing ahead: they are compared with, too, and must differ
 * by the more standard errors the fewer they are.
 * Arrivals see a disk as it is on average, whatever their own length; what comes later is not looked at, because long
 * IOs see more of it.
 */
#ifndef KOORD_USUAL_TIMES_H
#define KOORD_USUAL_TIMES_H

#define DEPTHS 7		  /* 0, 1, 2-3, 4-7, ... and 32 or more IOs ahead */
#define LONG_MEMORY 1024	  /* IOs over which the usual average fades */
#define SHORT_MEMORY 32		  /* IOs over which the recent one does */
#define KNOWN 16		  /* IOs from which an average is known well */
#define FEWEST 4		  /* IOs from which it is one to compare with */
#define NOTICED 4		  /* recent IOs from which there is something to compare */
#define RECENT_SECONDS 5	  /* pause after which the recent average starts anew */
#define REMEMBERED_SECONDS 3600	  /* age at which an average says nothing about the disk any longer */
#define LONGEST_NS 0xffffffffULL  /* that is learned from */
#define LONGEST_SHARED_NS (1ULL << 36)
#define FRACTION_BITS 10
#define UNIT_BITS 6 /* squares are of units of 64 ns, which fit */

struct average {
	u64 mean;    /* nanoseconds, with FRACTION_BITS */
	u64 squares; /* units of UNIT_BITS, squared, with FRACTION_BITS */
};

struct times {
	struct average usual;
	struct average recent;
	u32 count;
	u32 recents;
	u32 seen_s;
	u32 padding;
};

struct usual_times {
	struct times depths[DEPTHS];
};

static __always_inline u32 depth_of(u32 ahead)
{
	u32 depth = 0;

	for (int i = 0; i < DEPTHS - 1 && ahead; i++) {
		ahead >>= 1;
		depth++;
	}
	return depth;
}

static __always_inline void approach(u64 *mean, u64 value, u32 count)
{
	*mean = value < *mean ? *mean - (*mean - value) / count : *mean + (value - *mean) / count;
}

static __always_inline void average_in(struct average *average, u64 ns, u32 count)
{
	u64 units = ns >> UNIT_BITS;

	approach(&average->mean, ns << FRACTION_BITS, count);
	approach(&average->squares, units * units << FRACTION_BITS, count);
}

/* In squared units. */
static __always_inline u64 variance(struct average *average)
{
	u64 mean = average->mean >> (FRACTION_BITS + UNIT_BITS), squares = average->squares >> FRACTION_BITS;

	return squares > mean * mean ? squares - mean * mean : 0;
}

static __always_inline void learn(struct times *times, u64 ns, u32 now_s)
{
	u64 learned = ns < LONGEST_NS ? ns : LONGEST_NS;
	/* Signed: another CPU may have learned in a second that has not begun here. */
	s32 idle_s = now_s - times->seen_s;
	u32 count = idle_s < REMEMBERED_SECONDS ? times->count : 0;
	u32 recents = idle_s < RECENT_SECONDS ? times->recents : 0;

	times->count = count < LONG_MEMORY ? count + 1 : LONG_MEMORY;
	times->recents = recents < SHORT_MEMORY ? recents + 1 : SHORT_MEMORY;
	times->seen_s = now_s;
	average_in(&times->usual, learned, times->count);
	average_in(&times->recent, learned, times->recents);
}

/* Squared standard errors by which averages must differ: three, and more where the variance of the undisturbed one is
 * itself known from a few IOs (close to Student's t at the same probability). */
static __always_inline u64 squared_errors(u32 count)
{
	return 9 + 72 / (count - (FEWEST - 1));
}

/* Units by which an average over `count` is above the undisturbed one; 0 where chance explains it. */
static __always_inline u64 gap(struct times *undisturbed, struct average *here, u32 count)
{
	u64 least = undisturbed->usual.mean >> (FRACTION_BITS + UNIT_BITS);
	u64 mean = here->mean >> (FRACTION_BITS + UNIT_BITS), least_variance, here_variance, above, error;

	if (mean <= least + least / 5)
		return 0;
	above = mean - least;
	least_variance = variance(&undisturbed->usual);
	here_variance = variance(here);
	if (here_variance < least_variance) /* a few IOs that happen to be alike */
		here_variance = least_variance;
	error = least_variance / undisturbed->count + here_variance / count;
	return above * above > squared_errors(undisturbed->count) * error ? above : 0;
}

/* Part of an IO's time by which those of its depth take longer lately, or usually, than undisturbed ones. */
static __always_inline u64 beyond(struct times *undisturbed, struct times *mine, u64 ns)
{
	u64 least = undisturbed->usual.mean >> (FRACTION_BITS + UNIT_BITS);
	u64 here = mine->recent.mean >> (FRACTION_BITS + UNIT_BITS), lost;

	if (here <= least + least / 5) /* over, or not begun */
		return 0;
	lost = gap(undisturbed, &mine->recent, mine->recents);
	if (!lost) {
		lost = gap(undisturbed, &mine->usual, mine->count);
		here = mine->usual.mean >> (FRACTION_BITS + UNIT_BITS);
	}
	if (!here)
		return 0;
	return (ns < LONGEST_SHARED_NS ? ns : LONGEST_SHARED_NS) * lost / here;
}

static __always_inline bool is_recent(struct times *times, u32 now_s)
{
	return (s32)(now_s - times->seen_s) < REMEMBERED_SECONDS;
}

/* Part of an IO's time by which IOs with as much ahead take longer than those with the least ahead; learns from it.
 * Of a disk that had no IO with nothing ahead, such an IO is taken to last `presumed_ns`; 0 presumes nothing. */
GLOBAL_SUBPROGRAM u64 excess(struct usual_times *usual, u32 depth, u64 ns, u32 now_s, u64 presumed_ns)
{
	struct times *mine, *known = NULL, *few = NULL;
	u64 units = presumed_ns >> UNIT_BITS, lost = 0;

	if (!usual || depth >= DEPTHS)
		return 0;
	mine = &usual->depths[depth];
	learn(mine, ns, now_s);
	if (mine->recents < NOTICED)
		return 0;
	for (u32 i = 0; i < DEPTHS && i < depth && !known; i++) {
		struct times *times = &usual->depths[i];

		if (times->count < FEWEST || !is_recent(times, now_s))
			continue;
		if (times->count >= KNOWN)
			known = times;
		else if (!few)
			few = times;
	}
	if (presumed_ns && depth && (usual->depths[0].count < FEWEST || !is_recent(&usual->depths[0], now_s))) {
		struct times presumed = {
			.usual = {.mean = presumed_ns << FRACTION_BITS, .squares = 2 * units * units << FRACTION_BITS},
			.count = LONG_MEMORY,
		};

		lost = beyond(&presumed, mine, ns);
	}
	if (!lost && few)
		lost = beyond(few, mine, ns);
	if (!lost && known)
		lost = beyond(known, mine, ns);
	return lost;
}

#endif
