/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Memory stalls summed by cgroup and cause. Sums are shared by all CPUs and added to atomically. */
#ifndef KOORD_MEMORY_STALLS_H
#define KOORD_MEMORY_STALLS_H

#include "log2.h"

#define MAX_DEPTH 16	     /* levels of cgroups looked through for the limit */
#define DIRECT_RECLAIM 0x400 /* GFP bit: allowed to sleep, hence in process context, where current allocates */
#define LARGE_ORDER 4	     /* interrupts do not take as much at a time; huge pages are asked for without that bit */

enum stall_cause { OWN_LIMIT, ANCESTOR_LIMIT, GLOBAL, COMPACTION, STALL_CAUSES, NOT_A_STALL = STALL_CAUSES };
enum lost_place { LOST_STAMP, LOST_CGROUP, LOST_PAGES, LOST_VICTIM, LOST_PLACES };

struct memory_cgroup {
	u64 stall_ns[STALL_CAUSES];
	u64 stall_count[STALL_CAUSES];
	u64 own_limit_hist[SLOTS];
	u64 ancestor_limit_hist[SLOTS];
	u64 global_hist[SLOTS];
	u64 compaction_hist[SLOTS];
	u64 oom_kills;
};

/* Whether the pages are taken by the current task, which is to bear them, and not by an interrupt. */
static __always_inline bool taken_by_current(u32 order, u32 gfp)
{
	return gfp & DIRECT_RECLAIM || order >= LARGE_ORDER;
}

/* Stats of a cgroup, made when absent; NULL (and counted as lost) when the map is full. */
static __always_inline struct memory_cgroup *cgroup_stats(u64 cgroup);

static __always_inline u64 *stall_histogram(struct memory_cgroup *stats, u32 cause)
{
	switch (cause) {
	case OWN_LIMIT:
		return stats->own_limit_hist;
	case ANCESTOR_LIMIT:
		return stats->ancestor_limit_hist;
	case GLOBAL:
		return stats->global_hist;
	default:
		return stats->compaction_hist;
	}
}

static __always_inline void account_stall(u64 cgroup, u32 cause, u64 length_ns)
{
	struct memory_cgroup *stats;
	u32 slot = log2_slot(length_ns);

	if (cause >= STALL_CAUSES || slot >= SLOTS)
		return;
	stats = cgroup_stats(cgroup);
	if (!stats)
		return;
	__sync_fetch_and_add(&stats->stall_ns[cause], length_ns);
	__sync_fetch_and_add(&stats->stall_count[cause], 1);
	__sync_fetch_and_add(&stall_histogram(stats, cause)[slot], 1);
}

static __always_inline int count_oom_kill(u64 cgroup)
{
	struct memory_cgroup *stats = cgroup_stats(cgroup);

	if (stats)
		__sync_fetch_and_add(&stats->oom_kills, 1);
	return 0;
}

#endif
