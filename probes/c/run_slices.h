/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Run slices of a CPU, and run-queue waits charged to causes and culprits by their overlap with those slices.
 *
 * A CPU keeps a ring of its last slices: each holds its end and the identity that ran; it began where the slice before
 * it ended. A program that includes this defines add_blame, and COUNT to add to a sum.
 */
#ifndef KOORD_RUN_SLICES_H
#define KOORD_RUN_SLICES_H

#include "identity.h"
#include "log2.h"

#define RING 64
#define SUBTOTALS 8 /* culprits summed on the stack before they go to the map */

enum wait_cause {
	WAIT_NEIGHBOUR,
	WAIT_SELF,
	WAIT_OWN_QUOTA,
	WAIT_ANCESTOR_QUOTA,
	WAIT_KERNEL,
	WAIT_IDLE,
	WAIT_UNKNOWN,
	WAIT_CAUSES
};
enum lost_place { LOST_TASK, LOST_CGROUP, LOST_BLAME_NS, LOST_SWITCH, LOST_PLACES };

struct slice {
	u64 end_ns;
	u64 identity;
};

struct cpu_state {
	u64 since_ns; /* start of the slice that runs */
	u64 identity; /* of the running task */
	u64 cgroup;   /* its cgroup */
	u64 pid;      /* its thread id */
	u64 head;     /* slices ever pushed */
	u64 owed_cgroup; /* its on-CPU time is kept here until another cgroup has run */
	u64 owed_oncpu_ns;
	u64 owed_involuntary;
	struct slice ring[RING];
};

struct cpu_cgroup {
	u64 oncpu_ns;
	u64 involuntary;
	u64 wait_ns;
	u64 wait_count;
	u64 causes_ns[WAIT_CAUSES];
	u64 hist[SLOTS];
};

struct cpu_pair {
	u64 victim;
	u64 culprit;
};

struct subtotal {
	u64 ns;
	u64 culprit;
};

/* Parts of one wait, by cause; and by culprit, as far as there is room. */
struct walk {
	u64 victim;
	u64 self, neighbour, kernel, idle;
	struct subtotal subtotals[SUBTOTALS];
};

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns);

static __always_inline void charge(struct walk *walk, u64 identity, u64 ns)
{
	struct subtotal *subtotal;

	if (identity == walk->victim) {
		walk->self += ns;
		return;
	}
	if (identity == IDLE_ID) {
		walk->idle += ns;
		return;
	}
	if (identity == UNSEEN_ID)
		return;
	if (identity == KERNEL_ID)
		walk->kernel += ns;
	else
		walk->neighbour += ns;
	subtotal = &walk->subtotals[identity & (SUBTOTALS - 1)];
	if (subtotal->ns && subtotal->culprit != identity) {
		add_blame(walk->victim, subtotal->culprit, subtotal->ns);
		subtotal->ns = 0;
	}
	subtotal->culprit = identity;
	subtotal->ns += ns;
}

/* Charge [begin, end) of a wait on `state`'s CPU to the slices that overlap it, newest first. */
static __always_inline void walk_ring(struct walk *walk, struct cpu_state *state, u64 begin, u64 end)
{
	u64 head = state->head, upper = end, lower = state->since_ns;

	if (lower < upper) { /* the slice that still runs (seen from another CPU) */
		u64 from = lower > begin ? lower : begin;

		charge(walk, state->identity, upper - from);
		upper = from;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < RING - 1; i++) {
		struct slice *slice = &state->ring[(head - 1 - i) & (RING - 1)];
		u64 start = state->ring[(head - 2 - i) & (RING - 1)].end_ns;

		if (upper <= begin || !start || start > slice->end_ns)
			break;
		if (slice->end_ns < upper)
			upper = slice->end_ns;
		if (start < begin)
			start = begin;
		if (start < upper) {
			charge(walk, slice->identity, upper - start);
			upper = start;
		}
	}
}

static __always_inline void blame_subtotals(struct walk *walk)
{
	for (int i = 0; i < SUBTOTALS; i++)
		if (walk->subtotals[i].ns)
			add_blame(walk->victim, walk->subtotals[i].culprit, walk->subtotals[i].ns);
}

/* Most waits lie within the slice that just ended: one charge, no walk. Returns false where this one does not. */
static __always_inline bool charge_one_slice(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					     u64 end)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];
	u64 start = state->ring[(state->head - 2) & (RING - 1)].end_ns, identity = last->identity;

	if (last->end_ns != end || !start || start > begin)
		return false;
	if (identity == IDLE_ID) {
		COUNT(stats->causes_ns[WAIT_IDLE], end - begin);
	} else if (identity == victim) {
		COUNT(stats->causes_ns[WAIT_SELF], end - begin);
	} else if (identity == UNSEEN_ID) {
		COUNT(stats->causes_ns[WAIT_UNKNOWN], end - begin);
	} else {
		COUNT(stats->causes_ns[identity == KERNEL_ID ? WAIT_KERNEL : WAIT_NEIGHBOUR], end - begin);
		add_blame(victim, identity, end - begin);
	}
	return true;
}

SUBPROGRAM int charge_slices(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin, u64 end)
{
	struct walk walk = {.victim = victim};

	if (!stats || !state)
		return 0;
	walk_ring(&walk, state, begin, end);
	blame_subtotals(&walk);
	COUNT(stats->causes_ns[WAIT_SELF], walk.self);
	COUNT(stats->causes_ns[WAIT_NEIGHBOUR], walk.neighbour);
	COUNT(stats->causes_ns[WAIT_KERNEL], walk.kernel);
	COUNT(stats->causes_ns[WAIT_IDLE], walk.idle);
	COUNT(stats->causes_ns[WAIT_UNKNOWN], end - begin - walk.self - walk.neighbour - walk.kernel - walk.idle);
	return 0;
}

/* Charge [begin, end) of a wait; without a `state` its cause is unknown. */
static __always_inline void charge_wait(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					u64 end)
{
	if (!state)
		COUNT(stats->causes_ns[WAIT_UNKNOWN], end - begin);
	else if (!charge_one_slice(stats, victim, state, begin, end))
		charge_slices(stats, victim, state, begin, end);
}

static __always_inline void count_wait(struct cpu_cgroup *stats, u64 wait_ns)
{
	COUNT(stats->wait_ns, wait_ns);
	COUNT(stats->wait_count, 1);
	COUNT(stats->hist[log2_slot(wait_ns)], 1);
}

/* Add the slice that ends now to the ring; it prolongs the last one when the same identity ran. The first switch that
 * is seen on a CPU ends a slice of unknown start: that one is left out. */
static __always_inline void push_slice(struct cpu_state *state, u64 now)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];

	if (!state->since_ns)
		return;
	if (state->head && last->identity == state->identity) {
		last->end_ns = now;
		return;
	}
	if (!state->head) { /* a start for the first slice */
		state->ring[0].end_ns = state->since_ns;
		state->head = 1;
	}
	last = &state->ring[state->head & (RING - 1)];
	last->identity = state->identity;
	last->end_ns = now;
	state->head++;
}

/* Of the time since the last switch that was seen, the last `ran` belong to the task that leaves now: begin its slice
 * there, and leave what came before unknown. With `ran` 0 or beyond that switch all of it is unknown; returns false.
 */
static __always_inline bool end_unseen(struct cpu_state *state, u64 ran, u64 now)
{
	state->identity = UNSEEN_ID;
	if (!ran || ran > now - state->since_ns)
		return false;
	push_slice(state, now - ran);
	state->since_ns = now - ran;
	return true;
}

/* Pay what is owed to the last cgroup into `stats` and begin to owe the present one; saves a lookup while one cgroup
 * runs on. Without `stats`, what was owed is lost; returns false then. */
static __always_inline bool pay_owed(struct cpu_state *state, struct cpu_cgroup *stats)
{
	u64 owed = state->owed_cgroup;

	if (stats) {
		COUNT(stats->oncpu_ns, state->owed_oncpu_ns);
		COUNT(stats->involuntary, state->owed_involuntary);
	}
	state->owed_cgroup = state->cgroup;
	state->owed_oncpu_ns = 0;
	state->owed_involuntary = 0;
	return stats || !owed;
}

#endif
