// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Throttle episodes of each cgroup's own quota: one episode is one CPU's queue held back from throttle to unthrottle.
 *
 * Two ways, the loader picks one. Programs around unthrottle_cfs_rq see each episode as it ends. Where functions
 * cannot be traced, the queue's own throttle clock is read when a task of it is switched in: what the clock gained
 * since the last time is the episode. That clock runs for an ancestor's quota too, so each level is credited only with
 * what its own bandwidth account gained meanwhile.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "log2.h"
#include "maps.bpf.h"

#define LEVELS 8
#define MAX_RT_PRIO 100

enum lost_place { LOST_CGROUP, LOST_PLACES };

struct throttle_cgroup {
	u64 throttled_ns;
	u64 episodes;
	u64 seen_self_ns; /* this CPU's queue's clock when last read */
	u64 seen_own_ns;  /* the group's bandwidth account when last read on this CPU */
	u64 hist[SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct throttle_cgroup);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} starts SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct throttle_cgroup zero_cgroup;
const volatile u32 cpu_count = 1;

static __always_inline struct throttle_cgroup *stats_of(u64 cgroup)
{
	u64 key = sharded(cgroup);
	struct throttle_cgroup *stats = lookup_or_init(&cgroups, &key, &zero_cgroup);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

static __always_inline bool is_throttled(struct cfs_rq *queue)
{
	return BPF_CORE_READ_BITFIELD_PROBED(queue, throttled);
}

static __always_inline void add_episode(struct throttle_cgroup *stats, u64 length_ns)
{
	COUNT(stats->throttled_ns, length_ns);
	COUNT(stats->episodes, 1);
	COUNT(stats->hist[log2_slot(length_ns)], 1);
}

/* The function may leave early with the queue still throttled, and newer kernels clear the clock, so look before and
 * after. Both run under the run queue's lock. */
SEC("fentry/unthrottle_cfs_rq")
int BPF_PROG(before_unthrottle, struct cfs_rq *queue)
{
	u32 key = 0;
	u64 *start = bpf_map_lookup_elem(&starts, &key);

	if (start)
		*start = is_throttled(queue) ? queue->throttled_clock : 0;
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(after_unthrottle, struct cfs_rq *queue)
{
	u32 key = 0;
	u64 *start = bpf_map_lookup_elem(&starts, &key);
	struct throttle_cgroup *stats;
	u64 clock;

	if (!start || !*start || is_throttled(queue))
		return 0;
	clock = queue->rq->clock;
	stats = stats_of(queue->tg->css.cgroup->kn->id);
	if (stats && clock > *start)
		add_episode(stats, clock - *start);
	return 0;
}

static __always_inline struct cfs_rq *queue_on(struct task_group *group, u32 cpu)
{
	struct cfs_rq **queues = BPF_CORE_READ(group, cfs_rq);
	struct cfs_rq *queue = NULL;

	bpf_probe_read_kernel(&queue, sizeof(queue), queues + cpu);
	return queue;
}

/* Credit one level with what its queue's clock and its own account both gained since they were last read here. */
static __always_inline void settle(struct task_group *group, u32 cpu)
{
	struct cfs_rq *queue = queue_on(group, cpu);
	u64 self = BPF_CORE_READ(queue, throttled_clock_self_time);
	u64 own = BPF_CORE_READ(group, cfs_bandwidth.throttled_time);
	struct throttle_cgroup *stats;
	u64 length, account;

	if (!self)
		return;
	stats = stats_of(BPF_CORE_READ(group, css.cgroup, kn, id));
	if (!stats)
		return;
	length = self - stats->seen_self_ns;
	account = own - stats->seen_own_ns;
	stats->seen_self_ns = self;
	stats->seen_own_ns = own;
	if (account < length)
		length = account;
	if (length)
		add_episode(stats, length);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct throttle_cgroup *stats;
	struct task_group *group;
	struct cfs_rq *queue;
	u32 cpu;

	if (next->prio < MAX_RT_PRIO || !next->pid)
		return 0;
	queue = next->se.cfs_rq;
	if (!queue->throttled_clock_self_time)
		return 0;
	group = queue->tg;
	stats = stats_of(group->css.cgroup->kn->id);
	if (!stats || stats->seen_self_ns == queue->throttled_clock_self_time)
		return 0;
	cpu = bpf_get_smp_processor_id();
	for (int level = 0; level < LEVELS && group; level++) {
		settle(group, cpu);
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}

struct baseline {
	struct task_group *group;
	u64 cgroup;
	u64 own_ns;
};

static long settle_baseline(u32 cpu, struct baseline *base)
{
	struct cfs_rq *queue = queue_on(base->group, cpu);
	u64 self = BPF_CORE_READ(queue, throttled_clock_self_time);
	struct throttle_cgroup *stats;

	if (!self || !lookup_or_init(&cgroups, &base->cgroup, &zero_cgroup))
		return 0;
	stats = bpf_map_lookup_percpu_elem(&cgroups, &base->cgroup, cpu);
	if (stats && !stats->seen_self_ns) {
		stats->seen_self_ns = self;
		stats->seen_own_ns = base->own_ns;
	}
	return 0;
}

/* Skip throttling from before the probe started; run once, before on_switch. */
SEC("iter/task")
int take_baseline(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_group *group;

	if (!task)
		return 0;
	group = task->sched_task_group;
	for (int level = 0; level < LEVELS && group; level++) {
		struct baseline base = {
			.group = group,
			.cgroup = BPF_CORE_READ(group, css.cgroup, kn, id),
			.own_ns = BPF_CORE_READ(group, cfs_bandwidth.throttled_time),
		};

		bpf_loop(cpu_count, settle_baseline, &base, 0);
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
