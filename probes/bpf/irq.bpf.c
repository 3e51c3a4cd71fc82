// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Time that interrupts take on top of the running task: charged to the interrupted task's cgroup, and to each vector.
 *
 * A hard interrupt inside a soft one is taken out of it, so the two add up to the time lost. The idle task and kernel
 * threads (ksoftirqd among them) are no cgroup's: their share is in the vectors only.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"

#define SOFT_VECTORS 10
#define VECTOR_HARD SOFT_VECTORS
#define VECTOR_TIMER (SOFT_VECTORS + 1)
#define VECTORS (SOFT_VECTORS + 2)

enum lost_place { LOST_CGROUP, LOST_PLACES };

struct irq_cgroup {
	u64 hard_ns;
	u64 soft_ns;
};

struct irq_vector {
	u64 ns;
	u64 count;
	u64 stolen_ns; /* of ns, what came on top of a task of a cgroup */
};

struct irq_cpu {
	u64 hard_since_ns; /* 0 when no hard interrupt is being handled */
	u64 soft_since_ns;
	u64 hard_inside_ns; /* hard interrupt time since soft_since_ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct irq_cgroup);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VECTORS);
	__type(key, u32);
	__type(value, struct irq_vector);
} vectors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct irq_cpu);
} cpus SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct irq_cgroup zero_cgroup;

static __always_inline struct irq_cpu *this_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

/* The interrupted cgroup's account, NULL when no cgroup was interrupted. */
static __always_inline struct irq_cgroup *robbed(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct irq_cgroup *stats;
	u64 cgroup;

	if (!task->pid || serves_kernel(task))
		return NULL;
	cgroup = sharded(task_cgroup(task));
	stats = lookup_or_init(&cgroups, &cgroup, &zero_cgroup);
	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

static __always_inline void account(u32 vector, u64 ns, bool stolen)
{
	struct irq_vector *total = bpf_map_lookup_elem(&vectors, &vector);

	if (!total)
		return;
	total->ns += ns;
	total->count++;
	if (stolen)
		total->stolen_ns += ns;
}

static __always_inline int hard_entry(void)
{
	struct irq_cpu *cpu = this_cpu();

	if (cpu)
		cpu->hard_since_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int hard_exit(u32 vector)
{
	struct irq_cpu *cpu = this_cpu();
	struct irq_cgroup *stats;
	u64 ns;

	if (!cpu || !cpu->hard_since_ns)
		return 0;
	ns = bpf_ktime_get_ns() - cpu->hard_since_ns;
	cpu->hard_since_ns = 0;
	cpu->hard_inside_ns += ns;
	stats = robbed();
	if (stats)
		COUNT(stats->hard_ns, ns);
	account(vector, ns, stats);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry)
{
	return hard_entry();
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit)
{
	return hard_exit(VECTOR_HARD);
}

/* On x86 the timer interrupt does not come as an irq handler; elsewhere it does and these tracepoints are absent. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_timer_entry)
{
	return hard_entry();
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(on_timer_exit)
{
	return hard_exit(VECTOR_TIMER);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry)
{
	struct irq_cpu *cpu = this_cpu();

	if (cpu) {
		cpu->hard_inside_ns = 0;
		cpu->soft_since_ns = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	struct irq_cpu *cpu = this_cpu();
	struct irq_cgroup *stats;
	u64 ns, inside;

	if (!cpu || !cpu->soft_since_ns || vector >= SOFT_VECTORS)
		return 0;
	inside = cpu->hard_inside_ns;
	ns = bpf_ktime_get_ns() - cpu->soft_since_ns;
	ns = ns > inside ? ns - inside : 0;
	cpu->soft_since_ns = 0;
	stats = robbed();
	if (stats)
		COUNT(stats->soft_ns, ns);
	account(vector, ns, stats);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
