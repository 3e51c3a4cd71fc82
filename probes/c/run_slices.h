/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Run slices of a CPU, and run-queue waits charged to causes and culprits by their overlap with those slices.
 *
 * A CPU keeps a ring of its last slices: each holds its end and the identity that ran; it began where the slice before
 * it ended, all by one clock that is monotonic on each CPU. Slices that leave the ring are summed by epochs
 * (run_epochs.h), so that a long wait among short slices finds its culprits too. A program that includes this defines
 * add_blame, and COUNT to add to a sum that nothing else adds to meanwhile; where a program that charges may be
 * switched away, it adds atomically.
 */
#ifndef KOORD_RUN_SLICES_H
#define KOORD_RUN_SLICES_H

#include "identity.h"
#include "log2.h"
#include "run_epochs.h"

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

struct cpu_state {
	u64 since_ns; /* start of the slice that runs */
	u64 identity; /* of the running task */
	u64 cgroup;   /* its cgroup */
	u64 pid;      /* its thread id */
	u64 head;     /* slices ever pushed */
	u64 owed_cgroup; /* its on-CPU time is kept here until another cgroup has run */
	u64 owed_oncpu_ns;
	u64 owed_held_ns;
	u64 owed_involuntary;
	u64 sum_exec_ns; /* of the running task at its switch-in, by the scheduler's count */
	u64 ahead_ns;  /* CLOCK_MONOTONIC less the clock of slices, */
	u64 synced_ns; /* as of then */
	struct slice ring[RING];
	struct run_epochs epochs; /* what has left the ring */
};

struct cpu_cgroup {
	u64 oncpu_ns; /* by the scheduler's count: without stolen time, and without interrupts where it keeps them apart */
	u64 held_ns;  /* the same by the clock */
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

/* A part of a wait that is to be charged. */
struct part {
	u64 victim;
	u64 begin, end;
	u64 preemptible; /* what charges it may be switched away, and a switch adds to the same sums */
};

/* Parts of one wait, by cause; and by culprit, as far as there is room. */
struct walk {
	u64 victim;
	u64 preemptible;
	u64 self, neighbour, kernel, idle;
	struct share subtotals[SUBTOTALS];
};

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns, bool preemptible);

#define ADD(target, amount, preemptible)                                                                              \
	do {                                                                                                          \
		if (preemptible)                                                                                      \
			__sync_fetch_and_add(&(target), amount);                                                      \
		else                                                                                                  \
			COUNT(target, amount);                                                                        \
	} while (0)

/* Cgroup ids often differ by a multiple of SUBTOTALS: each directory takes as many as it has files. One product spreads
 * four in a row for all such steps; shifts and exclusive ors would quadruple what the verifier looks at. */
static __always_inline u32 subtotal_of(u64 identity)
{
	return (u32)identity * 0x9CD5F2BBU >> 29; /* the upper three bits, for SUBTOTALS */
}

static __always_inline void charge(struct walk *walk, u64 identity, u64 ns)
{
	struct share *subtotal;

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
	subtotal = &walk->subtotals[subtotal_of(identity)];
	if (subtotal->ns && subtotal->identity != identity) {
		add_blame(walk->victim, subtotal->identity, subtotal->ns, walk->preemptible);
		subtotal->ns = 0;
	}
	subtotal->identity = identity;
	subtotal->ns += ns;
}

/* Charge, verified once: within a loop its branches would multiply the verifier's paths. */
GLOBAL_SUBPROGRAM int charge_share(struct walk *walk, u64 identity, u64 ns)
{
	if (walk)
		charge(walk, identity, ns);
	return 0;
}

/* Charge [begin, end) of a wait on `state`'s CPU to the slices that overlap it, newest first; returns the end of what is
 * left. */
static __always_inline u64 walk_ring(struct walk *walk, struct cpu_state *state, u64 begin, u64 end)
{
	u64 head = state->head, upper = end, lower = state->since_ns;

	if (lower < upper) { /* the slice that still runs (seen from another CPU) */
		u64 from = lower > begin ? lower : begin;

		charge_share(walk, state->identity, upper - from);
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
			charge_share(walk, slice->identity, upper - start);
			upper = start;
		}
	}
	return upper;
}

/* Add a walk over [begin, end) of a wait to the sums; what none of the slices explains is of unknown cause. */
static __always_inline void settle_walk(struct walk *walk, struct cpu_cgroup *stats, u64 begin, u64 end)
{
	u64 known = walk->self + walk->neighbour + walk->kernel + walk->idle;
	bool preemptible = walk->preemptible;

	for (int i = 0; i < SUBTOTALS; i++)
		if (walk->subtotals[i].ns)
			add_blame(walk->victim, walk->subtotals[i].identity, walk->subtotals[i].ns, preemptible);
	ADD(stats->causes_ns[WAIT_SELF], walk->self, preemptible);
	ADD(stats->causes_ns[WAIT_NEIGHBOUR], walk->neighbour, preemptible);
	ADD(stats->causes_ns[WAIT_KERNEL], walk->kernel, preemptible);
	ADD(stats->causes_ns[WAIT_IDLE], walk->idle, preemptible);
	if (known < end - begin) /* a CPU that switches meanwhile may be seen between two states, and give a little more */
		ADD(stats->causes_ns[WAIT_UNKNOWN], end - begin - known, preemptible);
}

/* Most waits lie within the slice that just ended: one charge, no walk. Returns false where this one does not. */
static __always_inline bool charge_one_slice(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					     u64 end, bool preemptible)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];
	u64 start = state->ring[(state->head - 2) & (RING - 1)].end_ns, identity = last->identity;

	if (last->end_ns != end || !start || start > begin)
		return false;
	if (identity == IDLE_ID) {
		ADD(stats->causes_ns[WAIT_IDLE], end - begin, preemptible);
	} else if (identity == victim) {
		ADD(stats->causes_ns[WAIT_SELF], end - begin, preemptible);
	} else if (identity == UNSEEN_ID) {
		ADD(stats->causes_ns[WAIT_UNKNOWN], end - begin, preemptible);
	} else {
		ADD(stats->causes_ns[identity == KERNEL_ID ? WAIT_KERNEL : WAIT_NEIGHBOUR], end - begin, preemptible);
		add_blame(victim, identity, end - begin, preemptible);
	}
	return true;
}

/* Charge what the ring reaches of a part; returns the end of what is left, its begin where nothing is. */
SUBPROGRAM u64 charge_slices(struct cpu_cgroup *stats, struct cpu_state *state, struct part *part)
{
	struct walk walk = {.victim = part->victim, .preemptible = part->preemptible};
	u64 left;

	if (!stats || !state)
		return part->begin;
	left = walk_ring(&walk, state, part->begin, part->end);
	settle_walk(&walk, stats, left, part->end);
	return left;
}

/* The same for what has left the ring: each identity bears its part of an epoch. Not called by charge_slices: a walk is
 * large, and a chain of calls has 512 bytes of stack. */
GLOBAL_SUBPROGRAM int charge_epochs(struct cpu_cgroup *stats, struct cpu_state *state, struct part *part)
{
	struct walk walk = {};
	u64 newest, begin, upper;

	if (!stats || !state || !part)
		return 0;
	walk.victim = part->victim;
	walk.preemptible = part->preemptible;
	begin = part->begin;
	upper = part->end;
	newest = state->epochs.newest;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EPOCHS; i++) {
		struct epoch *epoch = &state->epochs.ring[(newest - i) & (EPOCHS - 1)];
		u64 lower = epoch->start_ns > begin ? epoch->start_ns : begin;

		if (upper <= begin || !epoch->end_ns || epoch->end_ns <= begin)
			break;
		if (epoch->end_ns < upper)
			upper = epoch->end_ns;
		if (lower >= upper)
			continue;
#pragma clang loop unroll(disable)
		for (int j = 0; j < EPOCH_SHARES; j++)
			if (epoch->shares[j].ns)
				charge_share(&walk, epoch->shares[j].identity,
					     part_within(epoch, epoch->shares[j].ns, upper - lower));
		upper = lower;
	}
	settle_walk(&walk, stats, begin, part->end);
	return 0;
}

/* Charge [begin, end) of a wait; without a `state` its cause is unknown. */
static __always_inline void charge_wait(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					u64 end, bool preemptible)
{
	struct part part = {.victim = victim, .begin = begin, .end = end, .preemptible = preemptible};

	if (!state) {
		ADD(stats->causes_ns[WAIT_UNKNOWN], end - begin, preemptible);
		return;
	}
	if (charge_one_slice(stats, victim, state, begin, end, preemptible))
		return;
	part.end = charge_slices(stats, state, &part);
	if (part.end > begin)
		charge_epochs(stats, state, &part);
}

/* Count a wait that has ended; its parts were added to the sum as they were charged. */
static __always_inline void count_wait(struct cpu_cgroup *stats, u64 wait_ns)
{
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
	keep_slice(&state->epochs, &state->ring[state->head & (RING - 1)]); /* of the oldest, only the end is read on */
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

/* Owe the slice that ends now to its cgroup; `sum_exec_ns` is the scheduler's count of the task's run time. */
static __always_inline void owe(struct cpu_state *state, u64 sum_exec_ns, bool runnable, u64 now)
{
	state->owed_oncpu_ns += sum_exec_ns - state->sum_exec_ns;
	state->owed_held_ns += now - state->since_ns;
	state->owed_involuntary += runnable;
}

/* Pay what is owed to the last cgroup into `stats` and begin to owe the present one; saves a lookup while one cgroup
 * runs on. Without `stats`, what was owed is lost; returns false then. */
static __always_inline bool pay_owed(struct cpu_state *state, struct cpu_cgroup *stats)
{
	u64 owed = state->owed_cgroup;

	if (stats) {
		COUNT(stats->oncpu_ns, state->owed_oncpu_ns);
		COUNT(stats->held_ns, state->owed_held_ns);
		COUNT(stats->involuntary, state->owed_involuntary);
	}
	state->owed_cgroup = state->cgroup;
	state->owed_oncpu_ns = 0;
	state->owed_held_ns = 0;
	state->owed_involuntary = 0;
	return stats || !owed;
}

#endif
