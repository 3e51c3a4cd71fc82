// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Run-queue wait for each cgroup, split by cause, and blamed on the cgroups that ran meanwhile.
 *
 * The scheduler notes when it queues a task (sched_info.last_queued, by the clock of the run queue) and sums what each
 * task waited; the wait ends when the task is switched in. Every CPU keeps a ring of its last run slices; a wait is charged
 * by its overlap with them. Throttled time comes from the cfs_rq's own throttle clock and is taken off the front of the
 * wait, because a throttled task cannot compete; only tasks of queues that were ever throttled are stamped with that clock
 * when they are queued. Task storage is made where no run-queue lock is held (fork, and once for all tasks at start). A
 * wait that does not end is charged up to the present by a pass over the tasks that are queued; a pass may be switched
 * away, and adds atomically.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"
#include "quota.bpf.h"
#include "slices.bpf.h"

#define MAX_RT_PRIO 100

#define STAMP_SET 1	  /* when it was queued; else its queue had never been throttled */
#define STAMP_THROTTLED 2 /* off the queue because of a quota when stamped */
#define STAMP_OWN 4	  /* and it was the cgroup's own quota */
#define STAMP_ASLEEP 8	  /* moved to another queue while it slept: the scheduler noted that as if it waited */

/* A pass charges waits from UNDER_WAY_NS on. The end of a wait, or a migration, may want the same part at that moment only
 * if it is long: below CONTENDED_NS it takes it without an atomic operation. No program takes the time between the two. */
#define UNDER_WAY_NS 500000000ULL
#define CONTENDED_NS 100000000ULL

/* The clock of a run queue is not adjusted as CLOCK_MONOTONIC is: so often their distance is noted. */
#define SYNC_NS 100000000ULL

/* Threads of a CPU that a pass looks at. */
#define MOST_QUEUED 256

/* A task group's queues are an array of pointers by CPU (not so in kernels that keep them per CPU). */
const volatile bool queues_by_cpu = true;

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak; /* 6.2 */
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

/* What a task waits for. */
struct stamp {
	u64 delay_ns;	 /* the scheduler's sum of its waits, as far as they are charged */
	u64 carried_ns;	 /* of the present wait: charged before a migration */
	u64 charged_ns;	 /* a pass has charged until then */
	u64 since_ns;	 /* by the run queue's clock, where the scheduler's note of when it was queued is none or wrong */
	u64 throttle_ns; /* throttle clock at the begin of what is not charged yet */
	u64 own_ns;	 /* the group's own throttled time then (before 6.18) */
	u64 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stamp);
} stamps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct cpu_cgroup);
} cgroups SEC(".maps");

static const struct cpu_cgroup zero_cgroup;

static __always_inline u32 task_cpu(struct task_struct *task)
{
	struct task_struct___cpu *old = (void *)task;

	if (bpf_core_field_exists(old->cpu))
		return old->cpu;
	return task->thread_info.cpu;
}

static __always_inline bool still_runnable(struct task_struct *prev)
{
	struct task_struct___state *old = (void *)prev;

	if (bpf_core_field_exists(prev->__state))
		return !prev->__state;
	return !old->state;
}

/* Whether a CPU runs the task, woken before it had left it or not. */
static __always_inline bool runs(struct task_struct *task)
{
	struct task_struct___narrow *narrow = (void *)task;

	if (bpf_core_field_size(task->on_cpu) == sizeof(narrow->on_cpu))
		return narrow->on_cpu;
	return task->on_cpu;
}

/* Whether the task is on a run queue, or on its way from one to another. */
static __always_inline bool is_queued(struct task_struct *task)
{
	struct task_struct___narrow *narrow = (void *)task;

	if (bpf_core_field_size(task->on_rq) == sizeof(narrow->on_rq))
		return narrow->on_rq;
	return task->on_rq;
}

/* Whether the task sleeps, though it is on a run queue. */
static __always_inline bool sleeps_queued(struct task_struct *task)
{
	return bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed;
}

static __always_inline bool is_fair(struct task_struct *task)
{
	return task->prio >= MAX_RT_PRIO; /* real-time tasks leave se stale */
}

/* Since 6.18 a quota takes threads off the CPU one by one, at which each gets a stamp; before, it took queues, with all
 * threads that had a stamp already. */
static __always_inline bool throttles_tasks(struct task_struct *task)
{
	return bpf_core_field_exists(task->throttled);
}

/* Now, by the clock of the task's run queue; of a task that is queued or switched in now. */
static __always_inline u64 queue_clock(struct task_struct *task)
{
	return task->se.cfs_rq->rq->clock;
}

/* Whether a quota ever held the queue: else all of its throttle clock will belong to the wait that begins now. */
static __always_inline bool knows_quota(struct task_struct *task, struct cfs_rq *queue)
{
	if (queue->throttle_count || throttle_clock(queue))
		return true;
	return !throttles_tasks(task) && queue->tg->cfs_bandwidth.throttled_time;
}

/* Whether a quota holds the queue, and its own one. */
static __always_inline u32 held(struct cfs_rq *queue)
{
	if (!queue->throttle_count)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED(queue, throttled) ? STAMP_THROTTLED | STAMP_OWN : STAMP_THROTTLED;
}

/* Note the throttle clock at the begin of a wait. */
static __always_inline void put_stamp(struct stamp *stamp, struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;

	stamp->throttle_ns = throttle_clock(queue);
	if (!throttles_tasks(task)) /* also without a quota: one may be set during the wait */
		stamp->own_ns = queue->tg->cfs_bandwidth.throttled_time;
	stamp->flags = STAMP_SET | held(queue);
}

/* Return whether its own quota held the task, not an ancestor's: by its queue when stamped, else by whether the time that
 * its own quota has held the group grew since the part began, on any CPU. */
static __always_inline bool own_quota(struct stamp *stamp, struct task_struct *task, struct cfs_rq *queue)
{
	if (stamp->flags & STAMP_THROTTLED)
		return stamp->flags & STAMP_OWN;
	if (throttles_tasks(task))
		return queue->tg->cfs_bandwidth.quota != ~0ULL;
	return queue->tg->cfs_bandwidth.throttled_time > (stamp->flags & STAMP_SET ? stamp->own_ns : 0);
}

/* Account a part of a wait on the CPU of `state`, which nothing else charges. */
static __always_inline void charge_segment(struct cpu_cgroup *stats, u64 cgroup, struct task_struct *task,
					   struct stamp *stamp, struct cpu_state *state, u64 begin, u64 now,
					   bool preemptible)
{
	u64 length = now - begin, throttled = 0;
	struct cfs_rq *queue = task->se.cfs_rq;

	ADD(stats->wait_ns, length, preemptible);
	if (is_fair(task)) {
		u64 clock = throttle_clock(queue), before = stamp->flags & STAMP_SET ? stamp->throttle_ns : 0;

		throttled = clock > before ? clock - before : 0;
		if (throttled > length)
			throttled = length;
	}
	if (throttled)
		ADD(stats->causes_ns[own_quota(stamp, task, queue) ? WAIT_OWN_QUOTA : WAIT_ANCESTOR_QUOTA], throttled,
		    preemptible);
	charge_wait(stats, cgroup, state, begin + throttled, now, preemptible);
}

/* Account the part of a wait that ends now, as far as no pass was here first. */
static __always_inline void end_segment(struct cpu_cgroup *stats, u64 cgroup, struct task_struct *task,
					struct stamp *stamp, struct cpu_state *state, u64 begin, u64 now)
{
	if (now - begin > CONTENDED_NS) {
		u64 charged = __sync_lock_test_and_set(&stamp->charged_ns, now);

		if (charged > now)
			return;
		if (charged > begin)
			begin = charged;
	}
	charge_segment(stats, cgroup, task, stamp, state, begin, now, false);
}

static __always_inline struct cpu_cgroup *cgroup_stats(u64 cgroup)
{
	u64 key = sharded(cgroup);
	struct cpu_cgroup *stats = lookup_or_init(&cgroups, &key, &zero_cgroup);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

static __always_inline void settle(struct cpu_state *state)
{
	u64 key = sharded(state->owed_cgroup);

	if (!pay_owed(state, bpf_map_lookup_elem(&cgroups, &key)))
		count_lost(LOST_CGROUP, 1);
	if (shards) /* what is owed is paid when its cgroup may be gone: other CPUs' entries are not this one's */
		cgroup_stats(state->owed_cgroup);
}

/* Clocks of two queues may differ. */
static __always_inline u64 since(u64 begin, u64 now)
{
	return begin < now ? now - begin : 0;
}

static __always_inline void end_wait(struct stamp *stamp, u64 delay_ns)
{
	stamp->delay_ns = delay_ns;
	stamp->carried_ns = 0;
	stamp->since_ns = 0;
}

/* Some kernels keep BPF away from privileged tasks: a switch made by one is not seen, and `prev`, its successor, began
 * unnoticed. The scheduler's own count since it picked the task tells when.
 */
static __always_inline void began_unseen(struct cpu_state *state, struct task_struct *prev, u64 now)
{
	u64 ran = is_fair(prev) ? prev->se.sum_exec_runtime - prev->se.prev_sum_exec_runtime : 0;
	struct stamp *stamp = prev->pid ? bpf_task_storage_get(&stamps, prev, NULL, 0) : NULL;

	count_lost(LOST_SWITCH, 1);
	if (stamp) {
		end_wait(stamp, prev->sched_info.run_delay);
		stamp->flags = 0;
	}
	if (!end_unseen(state, prev->pid ? ran : 0, now))
		return;
	state->pid = (u32)prev->pid;
	state->sum_exec_ns = prev->se.sum_exec_runtime - ran;
	state->cgroup = task_cgroup(prev);
	state->identity = task_identity(prev, state->cgroup);
}

/* A task that leaves its CPU and goes on waiting. */
static __always_inline void wait_on(struct task_struct *task, bool on_its_way_to_sleep)
{
	bool with_quota = knows_quota(task, task->se.cfs_rq);
	struct stamp *stamp;

	if (!with_quota && !on_its_way_to_sleep)
		return;
	stamp = bpf_task_storage_get(&stamps, task, NULL, 0);
	if (!stamp)
		return;
	if (with_quota)
		put_stamp(stamp, task);
	if (on_its_way_to_sleep) /* which the scheduler does not note */
		stamp->since_ns = queue_clock(task);
}

static __always_inline void leave_cpu(struct cpu_state *state, struct task_struct *prev, bool preempt, u64 now)
{
	bool runnable = still_runnable(prev);

	if (state->since_ns && state->pid != (u32)prev->pid)
		began_unseen(state, prev, now);
	push_slice(state, now);
	if (!prev->pid)
		return;
	if (state->since_ns && state->identity != UNSEEN_ID) {
		if (state->cgroup != state->owed_cgroup)
			settle(state);
		owe(state, prev->se.sum_exec_runtime, preempt || runnable, now);
	}
	if (preempt || runnable)
		wait_on(prev, !runnable);
}

static __always_inline void enter_cpu(struct cpu_state *state, struct task_struct *next, u64 now)
{
	struct cpu_cgroup *stats;
	struct stamp *stamp;
	u64 cgroup, queued, noted, length, whole;

	state->since_ns = now;
	state->pid = (u32)next->pid;
	if (!next->pid) {
		state->identity = IDLE_ID;
		return;
	}
	state->sum_exec_ns = next->se.sum_exec_runtime;
	cgroup = task_cgroup(next);
	state->cgroup = cgroup;
	state->identity = task_identity(next, cgroup);
	stamp = bpf_task_storage_get(&stamps, next, NULL, 0);
	if (!stamp) {
		count_lost(LOST_TASK, 1);
		return;
	}
	queued = next->sched_info.last_queued;
	noted = queued ? since(queued, now) : 0;
	length = stamp->since_ns ? since(stamp->since_ns, now) : noted;
	whole = stamp->carried_ns + length;
	end_wait(stamp, next->sched_info.run_delay + noted);
	stats = cgroup_stats(cgroup);
	if (stats) {
		count_wait(stats, whole);
		if (length)
			end_segment(stats, cgroup, next, stamp, state, now - length, now);
	}
	stamp->flags = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpus, &cpu);
	u64 now = queue_clock(next); /* read when the scheduler began to choose */

	if (!state)
		return 0;
	if (now - state->synced_ns > SYNC_NS) {
		state->ahead_ns = bpf_ktime_get_ns() - now;
		state->synced_ns = now;
	}
	leave_cpu(state, prev, preempt, now);
	enter_cpu(state, next, now);
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	u64 queued = task->sched_info.last_queued, now = queue_clock(task);
	bool noted_before = bpf_core_field_exists(task->se.sched_delayed) && queued && queued != now;
	bool with_quota = knows_quota(task, task->se.cfs_rq);
	struct stamp *stamp;

	if (!with_quota && !noted_before)
		return 0;
	if (runs(task)) /* about to sleep, it was woken before it left its CPU: it does not wait */
		return 0;
	stamp = bpf_task_storage_get(&stamps, task, NULL, 0);
	if (!stamp)
		return 0;
	if (noted_before && stamp->flags & STAMP_ASLEEP) {
		stamp->since_ns = now;
		stamp->flags = 0;
	}
	if (with_quota && !(stamp->flags & STAMP_SET))
		put_stamp(stamp, task);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task);
}

/* A waiting task moves to another run queue: it was taken off the old one just now, and the scheduler has added the part of
 * the wait to its sum. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int destination)
{
	struct stamp *stamp;
	struct cpu_state *state;
	struct cpu_cgroup *stats;
	struct cfs_rq **queues, *queue = NULL;
	u64 cgroup, now, length;
	u32 from = task_cpu(task);

	if (!is_queued(task))
		return 0;
	stamp = bpf_task_storage_get(&stamps, task, NULL, 0);
	if (!stamp)
		return 0;
	if (sleeps_queued(task)) {
		end_wait(stamp, task->sched_info.run_delay);
		stamp->flags = STAMP_ASLEEP;
		return 0;
	}
	now = queue_clock(task);
	length = since(stamp->delay_ns, task->sched_info.run_delay);
	if (stamp->since_ns)
		length = since(stamp->since_ns, now);
	stamp->carried_ns += length;
	stamp->delay_ns = task->sched_info.run_delay;
	stamp->since_ns = 0;
	if (length) {
		if (!throttles_tasks(task)) /* what holds the queue now is counted when it is let go */
			stamp->flags |= held(task->se.cfs_rq);
		cgroup = task_cgroup(task);
		stats = cgroup_stats(cgroup);
		state = bpf_map_lookup_elem(&cpus, &from);
		if (stats)
			end_segment(stats, cgroup, task, stamp, state, now - length, now);
	}
	stamp->flags = STAMP_SET;
	if (!throttles_tasks(task))
		stamp->own_ns = task->sched_task_group->cfs_bandwidth.throttled_time;
	/* where the new queue cannot be found, no throttled time is better than a made-up one */
	stamp->throttle_ns = ~0ULL;
	if (queues_by_cpu) {
		queues = BPF_CORE_READ(task, sched_task_group, cfs_rq);
		bpf_probe_read_kernel(&queue, sizeof(queue), queues + destination);
		stamp->throttle_ns = throttle_clock_probed(queue);
	}
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_new_task, struct task_struct *task)
{
	bpf_task_storage_get(&stamps, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Begin the part of a wait that comes after a pass, unless a new stamp came first. Its queue runs. */
static __always_inline void restart_throttle(struct task_struct *task, struct stamp *stamp)
{
	u64 flags = stamp->flags, before = stamp->throttle_ns, own_ns = stamp->own_ns;
	u64 clock = throttle_clock(task->se.cfs_rq);

	if (clock <= (flags & STAMP_SET ? before : 0)) /* it was not throttled, or has migrated since */
		return;
	__sync_val_compare_and_swap(&stamp->throttle_ns, before, clock);
	if (!throttles_tasks(task))
		__sync_val_compare_and_swap(&stamp->own_ns, own_ns,
					    task->se.cfs_rq->tg->cfs_bandwidth.throttled_time);
	__sync_val_compare_and_swap(&stamp->flags, flags, STAMP_SET);
}

/* Charge what a task has waited until now, where that is long. A throttled queue's own clock stands still meanwhile: such a
 * wait is left to a pass that finds the queue running, or to its end. */
static __always_inline void charge_under_way(struct task_struct *task, struct stamp *stamp)
{
	u64 charged = stamp->charged_ns, begin = stamp->since_ns, cgroup, now;
	struct cpu_cgroup *stats;
	struct cpu_state *state;
	u32 cpu = task_cpu(task);

	if (!begin)
		begin = task->sched_info.last_queued;
	state = bpf_map_lookup_elem(&cpus, &cpu);
	if (!begin || !state || !state->synced_ns || runs(task) || sleeps_queued(task))
		return;
	now = bpf_ktime_get_ns() - state->ahead_ns;
	if (charged > begin)
		begin = charged;
	if (begin + UNDER_WAY_NS > now || (is_fair(task) && task->se.cfs_rq->throttle_count))
		return;
	cgroup = task_cgroup(task);
	stats = cgroup_stats(cgroup);
	if (!stats || !__sync_bool_compare_and_swap(&stamp->charged_ns, charged, now))
		return;
	charge_segment(stats, cgroup, task, stamp, state, begin, now, true);
	if (is_fair(task) && stamp->charged_ns == now)
		restart_throttle(task, stamp);
}

/* Charge what one thread waits for, found by its number; verified once for all places in the loop that calls it. */
GLOBAL_SUBPROGRAM int charge_thread(s32 pid)
{
	struct task_struct *task = bpf_task_from_pid(pid);
	struct stamp *stamp;

	if (!task)
		return 0;
	stamp = bpf_task_storage_get(&stamps, task, NULL, 0);
	if (stamp)
		charge_under_way(task, stamp);
	bpf_task_release(task);
	return 0;
}

/* The run queue on which a thread runs, NULL if there is no such thread. */
static __always_inline struct rq *queue_of(s32 pid)
{
	struct task_struct *task = bpf_task_from_pid(pid);
	struct rq *queue;

	if (!task)
		return NULL;
	queue = BPF_CORE_READ(task, se.cfs_rq, rq);
	bpf_task_release(task);
	return queue;
}

/* Look at the queued threads of one CPU, from the one on that was queued or picked the longest ago. An idle CPU has
 * none, unless core scheduling keeps it idle: no thread runs there that leads to them. Threads of the real-time classes and
 * of sched_ext are on other lists. No lock is held: a list that changes meanwhile leads to other threads at worst, each of
 * which has its own stamp. */
SEC("iter/bpf_map_elem")
int charge_queue(struct bpf_iter__bpf_map_elem *ctx)
{
	struct cpu_state *state = ctx->value;
	struct list_head *head, *entry;
	struct rq *queue;

	if (!state || !state->pid)
		return 0;
	queue = queue_of(state->pid);
	if (!queue || BPF_CORE_READ(queue, nr_running) < 2)
		return 0;
	head = (void *)queue + bpf_core_field_offset(struct rq, cfs_tasks);
	entry = BPF_CORE_READ(queue, cfs_tasks.prev);
#pragma clang loop unroll(disable)
	for (int i = 0; i < MOST_QUEUED && entry && entry != head; i++) {
		struct task_struct *task = (void *)entry - bpf_core_field_offset(struct task_struct, se.group_node);

		charge_thread(BPF_CORE_READ(task, pid));
		entry = BPF_CORE_READ(entry, prev);
	}
	return 0;
}

/* The same on kernels that do not find threads for BPF (before 6.2): all threads of the machine. */
SEC("iter/task")
int charge_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct stamp *stamp;

	if (!task || !still_runnable(task))
		return 0;
	stamp = bpf_task_storage_get(&stamps, task, NULL, 0);
	if (stamp)
		charge_under_way(task, stamp);
	return 0;
}

SEC("iter/task")
int prepare_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct stamp *stamp;

	if (!task || bpf_task_storage_get(&stamps, task, NULL, 0))
		return 0;
	stamp = bpf_task_storage_get(&stamps, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stamp)
		return 0;
	stamp->delay_ns = task->sched_info.run_delay;
	if (!is_queued(task) || sleeps_queued(task)) /* it may have moved so before */
		stamp->flags = STAMP_ASLEEP;
	else if (task->sched_info.last_queued) /* what its queue was throttled before is not in this wait */
		put_stamp(stamp, task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
