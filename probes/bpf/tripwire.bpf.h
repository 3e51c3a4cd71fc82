/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tripwire: a watched cgroup that loses more than its budget within its window, to culprits that may be acted on, is
 * reported at once. Losses to other culprits do not count. */
#ifndef KOORD_TRIPWIRE_BPF_H
#define KOORD_TRIPWIRE_BPF_H

#include "cgroup.bpf.h"
#include "kernel.bpf.h"

#define TRIP_REST_NS 100000000ULL /* one cgroup is reported at most ten times a second */

/* Off unless asked for: the verifier then removes every trace of it. */
const volatile bool tripwire = false;

struct watched {
	u64 budget_ns;
	u64 window_ns;
	u64 since_ns; /* start of the window that runs */
	u64 lost_ns;  /* lost in it */
	u64 culprit;  /* took most of it (Boyer and Moore's majority vote) */
	u64 votes_ns;
	u64 reported_ns;
};

struct trip {
	u64 victim;
	u64 culprit;
	u64 lost_ns;
	u64 span_ns; /* in which it was lost */
	u64 at_ns;
};

const struct trip *trip_type __attribute__((unused)); /* so that the object's BTF describes it */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct watched);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u8);
} quietable SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} trips SEC(".maps");

static __always_inline void vote(struct watched *watch, u64 culprit, u64 ns)
{
	if (culprit == watch->culprit) {
		watch->votes_ns += ns;
	} else if (watch->votes_ns > ns) {
		watch->votes_ns -= ns;
	} else {
		watch->culprit = culprit;
		watch->votes_ns = ns - watch->votes_ns;
	}
}

/* `culprit` ran for `lost` while `victim` waited. CPUs may race: a sum may miss a part, and the next wait makes up for
 * it. A global function, so that the verifier checks it once and not at every place in the loops that call it. */
__noinline int check_budget(u64 victim, u64 culprit, u64 lost)
{
	struct watched *watch = bpf_map_lookup_elem(&watched, &victim);
	struct trip *trip;
	u64 now;

	if (!watch || !bpf_map_lookup_elem(&quietable, &culprit))
		return 0;
	now = bpf_ktime_get_ns();
	if (now - watch->since_ns > watch->window_ns) {
		watch->since_ns = now - lost;
		watch->lost_ns = 0;
		watch->votes_ns = 0;
	}
	watch->lost_ns += lost;
	vote(watch, culprit, lost);
	if (watch->lost_ns < watch->budget_ns || now - watch->reported_ns < TRIP_REST_NS)
		return 0;
	watch->reported_ns = now;
	trip = bpf_ringbuf_reserve(&trips, sizeof(*trip), 0); /* the stack has no room: it is shared by all calls to here */
	if (!trip)
		return 0;
	trip->victim = victim;
	trip->culprit = watch->culprit;
	trip->lost_ns = watch->lost_ns;
	trip->span_ns = now - watch->since_ns;
	trip->at_ns = now;
	bpf_ringbuf_submit(trip, 0);
	return 0;
}

#endif
