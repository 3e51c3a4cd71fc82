/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Throttle clock of a run queue: time held back by CPU quotas, by the kernel's own count, on every kernel. */
#ifndef KOORD_QUOTA_BPF_H
#define KOORD_QUOTA_BPF_H

#include "kernel.bpf.h"

/* Nanoseconds that the task's queue has been throttled by any level, ever (6.5, commit 677ea015f231; before that the
 * PELT clock's count of the same, 6.0, commit 64eaf50731ac). */
static __always_inline u64 throttle_clock(struct cfs_rq *queue)
{
	u64 total, since;

	if (bpf_core_field_exists(queue->throttled_clock_self)) {
		total = queue->throttled_clock_self_time;
		since = queue->throttled_clock_self;
		return since ? total + (queue->rq->clock - since) : total;
	}
	if (bpf_core_field_exists(queue->throttled_clock_pelt)) {
		total = queue->throttled_clock_pelt_time;
		if (!queue->throttle_count)
			return total;
		return total + (queue->rq->clock_pelt - queue->rq->lost_idle_time - queue->throttled_clock_pelt);
	}
	total = queue->throttled_clock_task_time;
	if (!queue->throttle_count)
		return total;
	return total + (queue->rq->clock_task - queue->throttled_clock_task);
}

/* The same for a queue that is not reached through a trusted pointer. */
static __always_inline u64 throttle_clock_probed(struct cfs_rq *queue)
{
	u64 since;

	if (bpf_core_field_exists(queue->throttled_clock_self)) {
		since = BPF_CORE_READ(queue, throttled_clock_self);
		return BPF_CORE_READ(queue, throttled_clock_self_time) +
		       (since ? BPF_CORE_READ(queue, rq, clock) - since : 0);
	}
	if (bpf_core_field_exists(queue->throttled_clock_pelt))
		return BPF_CORE_READ(queue, throttled_clock_pelt_time);
	return BPF_CORE_READ(queue, throttled_clock_task_time);
}

#endif
