// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Run-queue wait as in bpf/cpu.bpf.c, as far as header packages and kernels without BTF allow: stamps are kept in a
 * hash by thread id instead of task storage, and only while the thread waits. Run queues are private to the scheduler,
 * so throttled time cannot be told apart: the wait of a cgroup that `under_quota` names is of unknown cause. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(5, 19, 0)
#error sched_switch has its arguments in another order in 5.18
#endif

#include "run_slices.h"

struct stamp {
	u64 since_ns;
	u64 segment_ns;
	u64 cpu;
};

BPF_TABLE("hash", u32, struct stamp, stamps, MAX_WAITERS);
BPF_ARRAY(cpus, struct cpu_state, CPUS);
BPF_TABLE("percpu_hash", u64, struct cpu_cgroup, cgroups, MAX_CGROUPS);
BPF_TABLE("percpu_hash", struct cpu_pair, u64, blame, MAX_PAIRS);
BPF_TABLE("hash", u64, u64, under_quota, MAX_CGROUPS);
BPF_ARRAY(zero_cgroups, struct cpu_cgroup, 1);

static __always_inline u32 cpu_of(struct task_struct *task)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 16, 0)
	return PEEK(task->cpu);
#else
	return PEEK(task->thread_info.cpu);
#endif
}

static __always_inline bool still_runnable(struct task_struct *prev, bool preempt)
{
	if (preempt)
		return true;
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
	return !PEEK(prev->state);
#else
	return !PEEK(prev->__state);
#endif
}

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns, bool preemptible)
{
	struct cpu_pair pair = {.victim = victim, .culprit = culprit};
	u64 none = 0, *total = blame.lookup_or_try_init(&pair, &none);

	if (total)
		ADD(*total, ns, preemptible);
	else
		count_lost(LOST_BLAME_NS, ns);
}

static __always_inline void end_segment(struct cpu_cgroup *stats, u64 cgroup, struct cpu_state *state, u64 begin,
					u64 now)
{
	COUNT(stats->wait_ns, now - begin);
	charge_wait(stats, cgroup, under_quota.lookup(&cgroup) ? NULL : state, begin, now, false);
}

static __always_inline struct cpu_cgroup *cgroup_stats(u64 cgroup)
{
	struct cpu_cgroup *stats = cgroups.lookup(&cgroup), *none;
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

static __always_inline void settle(struct cpu_state *state)
{
	u64 owed = state->owed_cgroup;
	struct cpu_cgroup *stats = cgroups.lookup(&owed);

	if (!pay_owed(state, stats))
		count_lost(LOST_CGROUP, 1);
}

/* A switch that was not seen: see cpu.bpf.c. */
static __always_inline void began_unseen(struct cpu_state *state, struct task_struct *prev, u32 pid, u64 now)
{
	u64 ran = 0;

	if (pid && PEEK(prev->prio) >= MAX_RT_PRIO)
		ran = PEEK(prev->se.sum_exec_runtime) - PEEK(prev->se.prev_sum_exec_runtime);
	count_lost(LOST_SWITCH, 1);
	if (!end_unseen(state, ran, now))
		return;
	state->pid = pid;
	state->sum_exec_ns = PEEK(prev->se.sum_exec_runtime) - ran;
	state->cgroup = cgroup_of(prev);
	state->identity = task_identity(prev, state->cgroup);
}

static __always_inline void leave_cpu(struct cpu_state *state, struct task_struct *prev, bool preempt, u64 now, u32 cpu)
{
	struct stamp fresh = {.since_ns = now, .segment_ns = now, .cpu = cpu};
	u32 pid = PEEK(prev->pid);
	bool runnable;

	if (state->since_ns && state->pid != pid)
		began_unseen(state, prev, pid, now);
	push_slice(state, now);
	if (!pid)
		return;
	runnable = still_runnable(prev, preempt);
	if (state->since_ns && state->identity != UNSEEN_ID) {
		if (state->cgroup != state->owed_cgroup)
			settle(state);
		owe(state, PEEK(prev->se.sum_exec_runtime), runnable, now);
	}
	if (!runnable)
		stamps.delete(&pid);
	else if (stamps.update(&pid, &fresh))
		count_lost(LOST_TASK, 1);
}

static __always_inline void enter_cpu(struct cpu_state *state, struct task_struct *next, u64 now)
{
	struct cpu_cgroup *stats;
	struct stamp *stamp;
	u32 pid = PEEK(next->pid);
	u64 cgroup;

	state->since_ns = now;
	state->pid = pid;
	if (!pid) {
		state->identity = IDLE_ID;
		return;
	}
	state->sum_exec_ns = PEEK(next->se.sum_exec_runtime);
	cgroup = cgroup_of(next);
	state->cgroup = cgroup;
	state->identity = task_identity(next, cgroup);
	stamp = stamps.lookup(&pid);
	if (!stamp)
		return;
	stats = cgroup_stats(cgroup);
	if (stats) {
		count_wait(stats, now - stamp->since_ns);
		end_segment(stats, cgroup, state, stamp->segment_ns, now);
	}
	stamps.delete(&pid);
}

int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	int cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = cpus.lookup(&cpu);
	u64 now = bpf_ktime_get_ns();

	if (!state)
		return 0;
	leave_cpu(state, (struct task_struct *)ctx->args[1], ctx->args[0], now, cpu);
	enter_cpu(state, (struct task_struct *)ctx->args[2], now);
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	u64 now = bpf_ktime_get_ns();
	struct stamp fresh = {.since_ns = now, .segment_ns = now, .cpu = cpu_of(task)};
	u32 pid = PEEK(task->pid);

	if (stamps.lookup(&pid))
		return 0;
	if (stamps.insert(&pid, &fresh))
		count_lost(LOST_TASK, 1);
	return 0;
}

int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	return woken((struct task_struct *)ctx->args[0]);
}

int on_wakeup_new(struct bpf_raw_tracepoint_args *ctx)
{
	return woken((struct task_struct *)ctx->args[0]);
}

int on_migrate(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	u32 pid = PEEK(task->pid);
	struct stamp *stamp = stamps.lookup(&pid);
	struct cpu_cgroup *stats;
	u64 cgroup, now;
	int from;

	if (!stamp)
		return 0;
	now = bpf_ktime_get_ns();
	cgroup = cgroup_of(task);
	stats = cgroup_stats(cgroup);
	from = stamp->cpu;
	if (stats)
		end_segment(stats, cgroup, cpus.lookup(&from), stamp->segment_ns, now);
	stamp->segment_ns = now;
	stamp->cpu = (u32)ctx->args[1];
	return 0;
}
