/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Run slices that have left a CPU's ring, summed by epochs of some milliseconds: who ran in each, and for how long.
 *
 * An epoch ends with the slice before the one that would make it longer than EPOCH_NS, so a long slice is an epoch by
 * itself. Only the first identities of an epoch are kept, and in the last place the one with the longest slice; the time
 * of others is of unknown owners.
 */
#ifndef KOORD_RUN_EPOCHS_H
#define KOORD_RUN_EPOCHS_H

#define EPOCHS 32
#define EPOCH_NS 8000000ULL
#define EPOCH_SHARES 6

struct slice {
	u64 end_ns;
	u64 identity;
};

struct share {
	u64 ns; /* 0: no identity */
	u64 identity;
};

struct epoch {
	u64 start_ns;
	u64 end_ns; /* 0: never used */
	struct share shares[EPOCH_SHARES];
};

struct run_epochs {
	u64 newest;
	struct epoch ring[EPOCHS];
};

static __always_inline void add_share(struct epoch *epoch, u64 identity, u64 ns)
{
	struct share *last = &epoch->shares[EPOCH_SHARES - 1];

#pragma unroll
	for (int i = 0; i < EPOCH_SHARES; i++) {
		struct share *share = &epoch->shares[i];

		if (!share->ns)
			share->identity = identity;
		if (share->identity == identity) {
			share->ns += ns;
			return;
		}
	}
	if (last->ns < ns) {
		last->identity = identity;
		last->ns = ns;
	}
}

/* Add a slice that leaves the ring. It began where the one before it ended; of the first of all that is not known. */
static __always_inline void keep_slice(struct run_epochs *epochs, const struct slice *slice)
{
	struct epoch *epoch = &epochs->ring[epochs->newest & (EPOCHS - 1)];
	u64 start = epoch->end_ns, end = slice->end_ns;

	if (end <= start)
		return;
	if (!start) {
		epoch->start_ns = end;
		epoch->end_ns = end;
		return;
	}
	if (end - epoch->start_ns > EPOCH_NS && start > epoch->start_ns) {
		epochs->newest++;
		epoch = &epochs->ring[epochs->newest & (EPOCHS - 1)];
		*epoch = (struct epoch){.start_ns = start};
	}
	epoch->end_ns = end;
	add_share(epoch, slice->identity, end - start);
}

/* The part of an identity's time in an epoch that lies within `ns` of it, as if it had run evenly. */
static __always_inline u64 part_within(const struct epoch *epoch, u64 share_ns, u64 ns)
{
	u64 whole = epoch->end_ns - epoch->start_ns;

	return share_ns == whole ? ns : share_ns * ns / whole; /* several share no more than EPOCH_NS: no overflow */
}

#endif
