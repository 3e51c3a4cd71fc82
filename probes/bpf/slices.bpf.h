/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps of the cpu probe: each CPU's ring of run slices, and nanoseconds of blame. */
#ifndef KOORD_SLICES_BPF_H
#define KOORD_SLICES_BPF_H

#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"
#include "run_slices.h"
#include "tripwire.bpf.h"

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

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns, bool preemptible)
{
	struct cpu_pair pair = {.victim = victim, .culprit = culprit};
	u64 *total = lookup_or_init(&blame, &pair, &zero);

	if (total)
		ADD(*total, ns, preemptible);
	else
		count_lost(LOST_BLAME_NS, ns);
	if (tripwire)
		check_budget(victim, culprit, ns);
}

#endif
