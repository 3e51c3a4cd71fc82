// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Stacks of a few cgroups for a short time: what runs, sampled by a clock, and where victims wait, at each switch.
 *
 * A stack costs a microsecond or two, so a CPU takes at most one in STACK_EVERY_NS at switches. Waits in between are
 * summed without one. All maps are as small as one measurement needs; nothing is loaded between measurements.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"

#define FRAMES 64
#define STACK_EVERY_NS 1000000
#define NOT_TAKEN (-1000)
#define TASK_DEAD 0x80 /* include/linux/sched.h */

enum lost_place { LOST_TOTAL, LOST_WAIT, LOST_PLACES };

enum role { SAMPLED = 1, WAITS_TOO = 2 };

enum kind { ON_CPU, PREEMPTED, BLOCKED };

struct stacks_key {
	u64 cgroup;
	u32 tgid;
	u32 kind;
	s64 kernel; /* id of a stack, or a negative error */
	s64 user;
};

struct stacks_total {
	u64 count;
	u64 ns;
};

struct stacks_wait {
	u64 since_ns; /* 0 while the thread runs */
	struct stacks_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u64);
	__type(value, u64);
} roles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(u32));
	__uint(value_size, FRAMES * sizeof(u64));
} traces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct stacks_key);
	__type(value, struct stacks_total);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct stacks_wait);
} waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} last_taken SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct stacks_total nothing;

static __always_inline u64 role_of(u64 identity)
{
	u64 *role = bpf_map_lookup_elem(&roles, &identity);

	return role ? *role : 0;
}

static __always_inline void add(struct stacks_key *key, u64 ns)
{
	struct stacks_total *total = lookup_or_init(&totals, key, &nothing);

	if (!total) {
		count_lost(LOST_TOTAL, 1);
		return;
	}
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->ns, ns);
}

static __always_inline bool may_take(u64 now)
{
	u32 first = 0;
	u64 *last = bpf_map_lookup_elem(&last_taken, &first);

	if (!last || now - *last < STACK_EVERY_NS)
		return false;
	*last = now;
	return true;
}

static __always_inline u64 state_of(struct task_struct *task)
{
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return old->state;
}

static __always_inline void begin_wait(void *ctx, bool preempt, struct task_struct *task, u64 now)
{
	u64 identity = task_identity(task, task_cgroup(task));
	struct stacks_wait wait = {.since_ns = now};
	u64 state = state_of(task);
	u32 pid = task->pid;

	if (!pid || !(role_of(identity) & WAITS_TOO))
		return;
	if (state & TASK_DEAD) {
		/* It never runs again, so nothing would end the wait. */
		bpf_map_delete_elem(&waits, &pid);
		return;
	}
	wait.key.cgroup = identity;
	wait.key.tgid = task->tgid;
	wait.key.kind = preempt || !state ? PREEMPTED : BLOCKED;
	wait.key.kernel = wait.key.user = NOT_TAKEN;
	if (may_take(now)) {
		wait.key.kernel = bpf_get_stackid(ctx, &traces, 0);
		wait.key.user = bpf_get_stackid(ctx, &traces, BPF_F_USER_STACK);
	}
	if (bpf_map_update_elem(&waits, &pid, &wait, BPF_ANY))
		count_lost(LOST_WAIT, 1);
}

static __always_inline void end_wait(struct task_struct *task, u64 now)
{
	u32 pid = task->pid;
	struct stacks_wait *wait;

	if (!pid || !(role_of(task_identity(task, task_cgroup(task))) & WAITS_TOO))
		return;
	wait = bpf_map_lookup_elem(&waits, &pid);
	if (!wait || !wait->since_ns)
		return;
	if (now > wait->since_ns)
		add(&wait->key, now - wait->since_ns);
	wait->since_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();

	begin_wait(ctx, preempt, prev, now);
	end_wait(next, now);
	return 0;
}

/* The CPU clock ticked in a task. */
SEC("perf_event")
int on_clock(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stacks_key key = {.kind = ON_CPU};

	key.cgroup = task_identity(task, task_cgroup(task));
	if (!task->pid || !role_of(key.cgroup))
		return 0;
	key.tgid = task->tgid;
	key.kernel = bpf_get_stackid(ctx, &traces, 0);
	key.user = bpf_get_stackid(ctx, &traces, BPF_F_USER_STACK);
	add(&key, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
