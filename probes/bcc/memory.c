// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Memory stalls as in bpf/memory.bpf.c. Headers do not hold scan_control and compact_control, so the limit that stalls
 * a task is the level with the least room (the charge that failed has been taken back by then), and a compaction is
 * an allocation's when the task has PF_MEMALLOC, which the page allocator sets around its own only. */
#include <linux/memcontrol.h>
#include "memory_stalls.h"

#define SIGNAL_KILL 9
#define ROOM_PAGES 576 /* a huge page and a batch of charges */
#define SMALLEST_POINTER (1ULL << 32)

enum shortage { RECLAIMING, KSWAPDS_AWAKE, SHORTAGES };

struct stall {
	u64 since_ns;
	u64 cgroup;
	u32 cause;
	u32 depth;
};

BPF_TABLE("hash", u32, struct stall, stalls, 4096);
BPF_TABLE("hash", u64, struct memory_cgroup, cgroups, MAX_CGROUPS);
BPF_ARRAY(zero_cgroups, struct memory_cgroup, 1);
BPF_TABLE("percpu_hash", u64, u64, allocators, MAX_CGROUPS);
BPF_TABLE("lru_hash", u32, u64, sent_sigkill, 256);
BPF_PERCPU_ARRAY(kswapd_wakes, u64, 1);
BPF_ARRAY(shortage, u64, SHORTAGES);

static __always_inline struct memory_cgroup *cgroup_stats(u64 cgroup)
{
	struct memory_cgroup *stats = cgroups.lookup(&cgroup), *none;
	int first = 0;

	if (stats)
		return stats;
	none = zero_cgroups.lookup(&first);
	if (none)
		stats = cgroups.lookup_or_try_init(&cgroup, none);
	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

static __always_inline void count_reclaiming(u64 by)
{
	int key = RECLAIMING;
	u64 *value = shortage.lookup(&key);

	if (value)
		__sync_fetch_and_add(value, by);
}

static __always_inline void begin_stall(struct task_struct *task, u32 cause)
{
	struct stall fresh = {.since_ns = bpf_ktime_get_ns(), .cause = cause};
	u32 pid = bpf_get_current_pid_tgid();
	struct stall *outer = stalls.lookup(&pid);

	if (outer) {
		outer->depth++;
		return;
	}
	fresh.cgroup = cgroup_of(task);
	if (stalls.update(&pid, &fresh))
		count_lost(LOST_STAMP, 1);
	else if (cause == GLOBAL)
		count_reclaiming(1);
}

static __always_inline int end_stall(void)
{
	u32 pid = bpf_get_current_pid_tgid();
	struct stall *stall = stalls.lookup(&pid);

	if (!stall)
		return 0;
	if (stall->depth) {
		stall->depth--;
		return 0;
	}
	if (stall->cause == GLOBAL)
		count_reclaiming(-1);
	account_stall(stall->cgroup, stall->cause, bpf_ktime_get_ns() - stall->since_ns);
	stall->cause = NOT_A_STALL; /* it has ended, should the deletion fail */
	stalls.delete(&pid);
	return 0;
}

static __always_inline s64 room_pages(struct mem_cgroup *group)
{
	s64 usage = PEEK(group->memory.usage.counter);
	s64 max = PEEK(group->memory.max), high = PEEK(group->memory.high);

	return (high < max ? high : max) - usage;
}

static __always_inline u32 limit_cause(struct task_struct *task)
{
	struct css_set *set = PEEK(task->cgroups);
	struct cgroup_subsys_state *state = PEEK(set->subsys[memory_cgrp_id]);
	s64 least = ROOM_PAGES, room;
	u32 cause = NOT_A_STALL;

#pragma clang loop unroll(disable)
	for (int level = 0; level < MAX_DEPTH && state; level++) {
		room = room_pages((struct mem_cgroup *)state); /* the css is its first member */
		if (room < least) {
			least = room;
			cause = level ? ANCESTOR_LIMIT : OWN_LIMIT;
		}
		state = PEEK(state->parent);
	}
	return cause;
}

int on_limit_begin(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!is_kernel_thread(task))
		begin_stall(task, limit_cause(task));
	return 0;
}

int on_limit_end(struct bpf_raw_tracepoint_args *ctx)
{
	return end_stall();
}

int on_global_begin(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!is_kernel_thread(task))
		begin_stall(task, GLOBAL);
	return 0;
}

int on_global_end(struct bpf_raw_tracepoint_args *ctx)
{
	return end_stall();
}

int on_compaction_begin(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!is_kernel_thread(task))
		begin_stall(task, PEEK(task->flags) & PF_MEMALLOC ? COMPACTION : NOT_A_STALL);
	return 0;
}

int on_compaction_end(struct bpf_raw_tracepoint_args *ctx)
{
	return end_stall();
}

int on_kswapd_wake(struct bpf_raw_tracepoint_args *ctx)
{
	int first = 0, key = KSWAPDS_AWAKE;
	u64 *wakes = kswapd_wakes.lookup(&first), *awake = shortage.lookup(&key);
	u64 node = 1ULL << (ctx->args[0] & 63);

	if (wakes)
		*wakes += 1;
	if (awake)
		*awake |= node;
	return 0;
}

int on_kswapd_sleep(struct bpf_raw_tracepoint_args *ctx)
{
	int key = KSWAPDS_AWAKE;
	u64 *awake = shortage.lookup(&key), node = 1ULL << (ctx->args[0] & 63);

	if (awake)
		*awake &= ~node;
	return 0;
}

int on_page_alloc(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	int reclaim_key = RECLAIMING, awake_key = KSWAPDS_AWAKE;
	u64 *reclaiming = shortage.lookup(&reclaim_key), *awake = shortage.lookup(&awake_key);
	u64 taker, none = 0, *pages;

	if (!reclaiming || !awake || (!*reclaiming && !*awake))
		return 0;
	if (!ctx->args[0] || !taken_by_current(ctx->args[1], ctx->args[2]))
		return 0;
	taker = task_identity(task, cgroup_of(task));
	pages = allocators.lookup_or_try_init(&taker, &none);
	if (pages)
		*pages += 1ULL << (ctx->args[1] & 31);
	else
		count_lost(LOST_PAGES, 1);
	return 0;
}

/* Newer kernels name the victim by its task, older ones by a process id that has been sent SIGKILL, or is current. */
int on_victim(struct bpf_raw_tracepoint_args *ctx)
{
	u64 victim = ctx->args[0], *cgroup;
	u32 pid = victim;

	if (victim >= SMALLEST_POINTER)
		return count_oom_kill(cgroup_of((struct task_struct *)victim));
	cgroup = sent_sigkill.lookup(&pid);
	if (cgroup)
		return count_oom_kill(*cgroup);
	if ((u32)bpf_get_current_pid_tgid() == pid)
		return count_oom_kill(cgroup_of((struct task_struct *)bpf_get_current_task()));
	count_lost(LOST_VICTIM, 1);
	return 0;
}

int on_signal(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[2];
	u32 pid;
	u64 cgroup;

	if (ctx->args[0] != SIGNAL_KILL)
		return 0;
	pid = PEEK(task->pid);
	cgroup = cgroup_of(task);
	sent_sigkill.update(&pid, &cgroup);
	return 0;
}
