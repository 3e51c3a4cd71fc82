/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who held a CPU when: each CPU's ring of run slices, and waits charged to causes and culprits by overlap with it. */
#ifndef KOORD_SLICES_BPF_H
#define KOORD_SLICES_BPF_H

#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"
#include "tripwire.bpf.h"

#define RING 64
#define SEEN 8 /* culprits summed on the stack before they go to the map */

enum cause { NEIGHBOUR, SELF, OWN_QUOTA, ANCESTOR_QUOTA, KERNEL, IDLE, UNKNOWN, CAUSES };
enum lost_place { LOST_TASK, LOST_CGROUP, LOST_BLAME_NS, LOST_SWITCH, LOST_PLACES };

struct slice {
	u64 end_ns;
	u64 who;
};

struct cpu_state {
	u64 since_ns; /* start of the slice that runs */
	u64 who;      /* identity of the running task */
	u64 cgroup;   /* its cgroup */
	u64 pid;      /* its thread id */
	u64 head;     /* slices ever pushed */
	u64 owed_cgroup; /* whose on-CPU time is kept here until another cgroup has run */
	u64 owed_oncpu_ns;
	u64 owed_involuntary;
	struct slice ring[RING];
};

struct cpu_cgroup {
	u64 oncpu_ns;
	u64 involuntary;
	u64 wait_ns;
	u64 wait_count;
	u64 causes_ns[CAUSES];
	u64 hist[SLOTS];
};

struct cpu_pair {
	u64 victim;
	u64 culprit;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cpu_pair);
	__type(value, u64);
} blame SEC(".maps");

LOST_MAP(LOST_PLACES);

static const u64 zero;

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct cpu_pair pair = {.victim = victim, .culprit = culprit};
	u64 *total = lookup_or_init(&blame, &pair, &zero);

	if (total)
		*total += ns;
	else
		count_lost(LOST_BLAME_NS, ns);
	if (tripwire)
		step_on_wire(victim, culprit, ns);
}

struct walk {
	u64 victim;
	u64 self, neighbour, kernel, idle;
	struct slice seen[SEEN];
};

static __always_inline void charge(struct walk *walk, u64 who, u64 ns)
{
	struct slice *seat;

	if (who == walk->victim) {
		walk->self += ns;
		return;
	}
	if (who == IDLE_ID) {
		walk->idle += ns;
		return;
	}
	if (who == UNSEEN_ID)
		return;
	if (who == KERNEL_ID)
		walk->kernel += ns;
	else
		walk->neighbour += ns;
	seat = &walk->seen[who & (SEEN - 1)];
	if (seat->end_ns && seat->who != who) {
		add_blame(walk->victim, seat->who, seat->end_ns);
		seat->end_ns = 0;
	}
	seat->who = who;
	seat->end_ns += ns;
}

/* Charge [begin, end) of a wait on `state`'s CPU to the slices that overlap it. */
static __always_inline void walk_ring(struct walk *walk, struct cpu_state *state, u64 begin, u64 end)
{
	u64 head = state->head, upper = end, lower = state->since_ns;

	if (lower < upper) { /* the slice that still runs (seen from another CPU) */
		u64 from = lower > begin ? lower : begin;

		charge(walk, state->who, upper - from);
		upper = from;
	}
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
			charge(walk, slice->who, upper - start);
			upper = start;
		}
	}
}

static __always_inline void flush(struct walk *walk)
{
	for (int i = 0; i < SEEN; i++)
		if (walk->seen[i].end_ns)
			add_blame(walk->victim, walk->seen[i].who, walk->seen[i].end_ns);
}

/* Most waits lie within the slice that just ended: one charge, no walk. */
static __always_inline bool charge_one_slice(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					     u64 end)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];
	u64 start = state->ring[(state->head - 2) & (RING - 1)].end_ns, who = last->who;

	if (last->end_ns != end || !start || start > begin)
		return false;
	if (who == IDLE_ID) {
		stats->causes_ns[IDLE] += end - begin;
	} else if (who == victim) {
		stats->causes_ns[SELF] += end - begin;
	} else if (who == UNSEEN_ID) {
		stats->causes_ns[UNKNOWN] += end - begin;
	} else {
		stats->causes_ns[who == KERNEL_ID ? KERNEL : NEIGHBOUR] += end - begin;
		add_blame(victim, who, end - begin);
	}
	return true;
}

static __noinline int charge_slices(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin, u64 end)
{
	struct walk walk = {.victim = victim};

	if (!stats || !state)
		return 0;
	walk_ring(&walk, state, begin, end);
	flush(&walk);
	stats->causes_ns[SELF] += walk.self;
	stats->causes_ns[NEIGHBOUR] += walk.neighbour;
	stats->causes_ns[KERNEL] += walk.kernel;
	stats->causes_ns[IDLE] += walk.idle;
	stats->causes_ns[UNKNOWN] += end - begin - walk.self - walk.neighbour - walk.kernel - walk.idle;
	return 0;
}

#endif
