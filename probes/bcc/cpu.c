// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Run-queue wait as in bpf/cpu.bpf.c, with what header packages and kernels without BTF leave: stamps stand in a hash
 * by thread id instead of task storage, and only while the thread waits. Run queues are private to the scheduler, so
 * nobody can tell throttled time: the wait of a cgroup that `under_quota` names is of unknown cause. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(5, 19, 0)
#error sched_switch has its arguments in another order in 5.18
#endif

#define RING 64
#define SEEN 8

enum cause { CAUSE_NEIGHBOUR, CAUSE_SELF, CAUSE_OWN, CAUSE_ANCESTOR, CAUSE_KERNEL, CAUSE_IDLE, CAUSE_UNKNOWN, CAUSES };
enum lost_place { LOST_TASK, LOST_CGROUP, LOST_BLAME_NS, LOST_SWITCH };

struct stamp {
	u64 since_ns;
	u64 segment_ns;
	u64 cpu;
};

struct slice {
	u64 end_ns;
	u64 who;
};

struct cpu_state {
	u64 since_ns;
	u64 who;
	u64 cgroup;
	u64 pid;
	u64 head;
	u64 owed_cgroup;
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

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct cpu_pair pair = {.victim = victim, .culprit = culprit};
	u64 none = 0, *total = blame.lookup_or_try_init(&pair, &none);

	if (total)
		*total += ns;
	else
		count_lost(LOST_BLAME_NS, ns);
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

static __always_inline void walk_ring(struct walk *walk, struct cpu_state *state, u64 begin, u64 end)
{
	u64 head = state->head, upper = end, lower = state->since_ns;

	if (lower < upper) {
		u64 from = lower > begin ? lower : begin;

		charge(walk, state->who, upper - from);
		upper = from;
	}
#pragma clang loop unroll(disable)
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

static __always_inline bool charge_one_slice(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					     u64 end)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];
	u64 start = state->ring[(state->head - 2) & (RING - 1)].end_ns, who = last->who;

	if (last->end_ns != end || !start || start > begin)
		return false;
	if (who == IDLE_ID) {
		stats->causes_ns[CAUSE_IDLE] += end - begin;
	} else if (who == victim) {
		stats->causes_ns[CAUSE_SELF] += end - begin;
	} else if (who == UNSEEN_ID) {
		stats->causes_ns[CAUSE_UNKNOWN] += end - begin;
	} else {
		stats->causes_ns[who == KERNEL_ID ? CAUSE_KERNEL : CAUSE_NEIGHBOUR] += end - begin;
		add_blame(victim, who, end - begin);
	}
	return true;
}

static __always_inline void charge_slices(struct cpu_cgroup *stats, u64 victim, struct cpu_state *state, u64 begin,
					  u64 end)
{
	struct walk walk = {.victim = victim};

	walk_ring(&walk, state, begin, end);
	for (int i = 0; i < SEEN; i++)
		if (walk.seen[i].end_ns)
			add_blame(victim, walk.seen[i].who, walk.seen[i].end_ns);
	stats->causes_ns[CAUSE_SELF] += walk.self;
	stats->causes_ns[CAUSE_NEIGHBOUR] += walk.neighbour;
	stats->causes_ns[CAUSE_KERNEL] += walk.kernel;
	stats->causes_ns[CAUSE_IDLE] += walk.idle;
	stats->causes_ns[CAUSE_UNKNOWN] += end - begin - walk.self - walk.neighbour - walk.kernel - walk.idle;
}

static __always_inline void end_segment(struct cpu_cgroup *stats, u64 cgroup, struct cpu_state *state, u64 begin,
					u64 now)
{
	if (!state || under_quota.lookup(&cgroup))
		stats->causes_ns[CAUSE_UNKNOWN] += now - begin;
	else if (!charge_one_slice(stats, cgroup, state, begin, now))
		charge_slices(stats, cgroup, state, begin, now);
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

	if (stats) {
		stats->oncpu_ns += state->owed_oncpu_ns;
		stats->involuntary += state->owed_involuntary;
	} else if (owed) {
		count_lost(LOST_CGROUP, 1);
	}
	state->owed_cgroup = state->cgroup;
	state->owed_oncpu_ns = 0;
	state->owed_involuntary = 0;
}

static __always_inline void push_slice(struct cpu_state *state, u64 now)
{
	struct slice *last = &state->ring[(state->head - 1) & (RING - 1)];

	if (state->head && last->who == state->who) {
		last->end_ns = now;
		return;
	}
	if (!state->head) {
		state->ring[0].end_ns = state->since_ns;
		state->head = 1;
	}
	last = &state->ring[state->head & (RING - 1)];
	last->who = state->who;
	last->end_ns = now;
	state->head++;
}

static __always_inline void leave_cpu(struct cpu_state *state, struct task_struct *prev, bool preempt, u64 now, u32 cpu)
{
	struct stamp fresh = {.since_ns = now, .segment_ns = now, .cpu = cpu};
	u32 pid = PEEK(prev->pid);
	bool runnable;

	if (state->since_ns && state->pid != pid) {
		count_lost(LOST_SWITCH, 1);
		state->who = UNSEEN_ID;
	}
	if (state->since_ns)
		push_slice(state, now);
	if (!pid)
		return;
	runnable = still_runnable(prev, preempt);
	if (state->since_ns && state->who != UNSEEN_ID) {
		if (state->cgroup != state->owed_cgroup)
			settle(state);
		state->owed_oncpu_ns += now - state->since_ns;
		state->owed_involuntary += runnable;
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
	u64 cgroup, wait;

	state->since_ns = now;
	state->pid = pid;
	if (!pid) {
		state->who = IDLE_ID;
		return;
	}
	cgroup = cgroup_of(next);
	state->cgroup = cgroup;
	state->who = task_identity(next, cgroup);
	stamp = stamps.lookup(&pid);
	if (!stamp)
		return;
	stats = cgroup_stats(cgroup);
	if (stats) {
		wait = now - stamp->since_ns;
		stats->wait_ns += wait;
		stats->wait_count++;
		stats->hist[log2_slot(wait)]++;
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
