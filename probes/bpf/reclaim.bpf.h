/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a task that reclaims memory reclaims it for: a limit, or the whole node. */
#ifndef KOORD_RECLAIM_BPF_H
#define KOORD_RECLAIM_BPF_H

#include "kernel.bpf.h"

struct mem_cgroup {
	struct cgroup_subsys_state css;
} KERNEL_TYPE;

struct reclaim_state {
	unsigned long reclaimed;
} KERNEL_TYPE;

struct scan_control {
	struct mem_cgroup *target_mem_cgroup;
	struct reclaim_state reclaim_state;
} KERNEL_TYPE;

struct task_struct___reclaim {
	struct reclaim_state *reclaim_state;
} KERNEL_TYPE;

/* NULL for a task that does not reclaim. */
static __always_inline struct reclaim_state *reclaim_state(struct task_struct *task)
{
	struct task_struct___reclaim *with_state = (void *)task;

	return BPF_CORE_READ(with_state, reclaim_state);
}

/* The memory cgroup whose limit a task in reclaim enforces, NULL where the whole node is short: the task's
 * reclaim_state lies within the scan_control that names it. */
static __always_inline struct mem_cgroup *reclaim_target(struct reclaim_state *state)
{
	struct scan_control *scan = NULL;

	scan = (void *)((char *)state - bpf_core_field_offset(scan->reclaim_state));
	return BPF_CORE_READ(scan, target_mem_cgroup);
}

#endif
