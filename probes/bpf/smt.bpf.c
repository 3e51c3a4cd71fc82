// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Time two cgroups ran on the two threads of one core, for each pair of cgroups.
 *
 * A core's state holds the cgroup on each thread and the time up to which their overlap is charged. A switch on either
 * thread first charges the time since then to that pair, so one switch settles both sides. The claim on that time is a
 * compare-and-exchange: each nanosecond is charged once, whichever thread is faster. Kernel threads and idle are no
 * neighbours. Time whose holder turns out to have been another one is not charged but counted as lost.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"

#define THREADS 2
#define MAX_CORES 1024
#define NO_CORE 0xFFFFFFFFU

enum lost_place { LOST_PAIR_NS, LOST_UNSEEN_NS, LOST_PLACES };

const volatile u32 cores_known = 1;

struct smt_seat {
	u32 core;
	u32 thread;
};

struct smt_core {
	u64 settled_ns; /* up to when the overlap is charged */
	u64 identities[THREADS];
	u64 since_ns[THREADS]; /* since when that is known */
	u64 padding[3];	       /* a cache line of its own */
};

struct smt_pair { /* in ascending order: an overlap has no direction */
	u64 low;
	u64 high;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct smt_seat);
} seats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct smt_core);
} cores SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct smt_pair);
	__type(value, u64);
} pairs SEC(".maps");

LOST_MAP(LOST_PLACES);

static const u64 zero;

static __always_inline void charge(u64 one, u64 other, u64 ns)
{
	struct smt_pair pair = {.low = one < other ? one : other, .high = one < other ? other : one};
	u64 *total = lookup_or_init(&pairs, &pair, &zero);

	if (total)
		COUNT(*total, ns);
	else
		count_lost(LOST_PAIR_NS, ns);
}

static __always_inline bool is_cgroup(u64 id)
{
	return id != IDLE_ID && id != KERNEL_ID;
}

/* Charge what is not charged yet. A lost claim means that the other thread has just done it. */
static __always_inline void settle(struct smt_core *core, u64 now)
{
	u64 settled = core->settled_ns, one = core->identities[0], other = core->identities[1];

	if (now <= settled || __sync_val_compare_and_swap(&core->settled_ns, settled, now) != settled)
		return;
	if (settled && one != other && is_cgroup(one) && is_cgroup(other))
		charge(one, other, now - settled);
}

static __always_inline u64 identity(struct task_struct *task)
{
	return task->pid ? task_identity(task, task_cgroup(task)) : IDLE_ID;
}

static __always_inline struct smt_core *own_core(u32 *thread)
{
	u32 cpu = bpf_get_smp_processor_id(), core;
	struct smt_seat *seat = bpf_map_lookup_elem(&seats, &cpu);

	if (!seat || seat->core == NO_CORE)
		return NULL;
	core = seat->core;
	*thread = seat->thread & (THREADS - 1);
	return bpf_map_lookup_elem(&cores, &core);
}

/* The task that leaves is not the one that was thought there: it moved to another cgroup, or the kernel hid its coming.
 */
static __always_inline void forget(struct smt_core *core, u32 thread, u64 now)
{
	u64 since = core->since_ns[thread];

	if (since && now > since)
		count_lost(LOST_UNSEEN_NS, now - since);
	core->identities[thread] = IDLE_ID;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 leaves = identity(prev), comes = identity(next), now;
	struct smt_core *core;
	u32 thread;

	core = own_core(&thread);
	if (!core || (comes == leaves && core->identities[thread] == leaves))
		return 0;
	now = bpf_ktime_get_ns();
	if (core->identities[thread] != leaves)
		forget(core, thread, now);
	settle(core, now);
	core->identities[thread] = comes;
	core->since_ns[thread] = now;
	return 0;
}

/* Run on each thread once, before the first switch: note the running cgroup. */
SEC("raw_tp")
int sit_down(void *ctx)
{
	struct smt_core *core;
	u32 thread;

	core = own_core(&thread);
	if (!core)
		return 0;
	core->since_ns[thread] = bpf_ktime_get_ns();
	settle(core, core->since_ns[thread]);
	core->identities[thread] = identity(bpf_get_current_task_btf());
	return 0;
}

/* Run by the reader: charge overlaps that go on, too. */
SEC("raw_tp")
int settle_cores(void *ctx)
{
	u64 now = bpf_ktime_get_ns();

	for (u32 i = 0; i < MAX_CORES && i < cores_known; i++) {
		u32 index = i;
		struct smt_core *core = bpf_map_lookup_elem(&cores, &index);

		if (core)
			settle(core, now);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
