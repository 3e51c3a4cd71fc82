// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Hardware events for each cgroup: CPU-wide perf events read whenever a CPU passes from one cgroup to another.
 *
 * The growth since the last reading belongs to the cgroup that held the CPU. Between threads of one cgroup nothing is
 * read, and while `filtering` is on, cgroups that are not in `focused` are treated as idle. `settle`
 * is run on a CPU by the reader: it charges the slice that still runs, and reads how long each event had a hardware
 * counter, which is the same for all cgroups of the CPU.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"

enum event { CYCLES, INSTRUCTIONS, LLC_REFERENCES, LLC_MISSES, EVENTS };
enum lost_place { LOST_CGROUP, LOST_READ, LOST_UNSEEN_NS, LOST_PLACES };

#define MAX_ERRNO 4095

const volatile u32 open_events = 15; /* a bit for each event that is open */

struct pmu_cgroup {
	u64 counts[EVENTS];
	u64 enabled_ns; /* time the cgroup held CPUs */
};

struct pmu_cpu {
	u64 cgroup; /* holds the CPU; 0 for idle */
	u64 since_ns;
	u64 passes;
	u64 known; /* a bit for each event whose base is valid */
	u64 base[EVENTS];
	u64 enabled_ns[EVENTS]; /* time the event was wanted, and had a hardware counter, as of the last `settle` */
	u64 running_ns[EVENTS];
};

#define EVENT_ARRAY(name)                                                                                             \
	struct {                                                                                                      \
		__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);                                                          \
		__uint(max_entries, 1);                                                                               \
		__uint(key_size, sizeof(u32));                                                                        \
		__uint(value_size, sizeof(u32));                                                                      \
	} name SEC(".maps")

EVENT_ARRAY(cycles);
EVENT_ARRAY(instructions);
EVENT_ARRAY(llc_references);
EVENT_ARRAY(llc_misses);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pmu_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct pmu_cgroup);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u32);
} focused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} filtering SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct pmu_cgroup zero_cgroup;

/* Make `count` the event's base on this CPU; the growth goes to `total`, if there is one. */
static __always_inline void advance(struct pmu_cpu *cpu, u32 event, u64 count, struct pmu_cgroup *total)
{
	u64 base = cpu->base[event];

	if (count < base) /* opened anew after the CPU was offline */
		base = 0;
	if (total && cpu->known & 1ULL << event)
		total->counts[event] += count - base;
	cpu->base[event] = count;
	cpu->known |= 1ULL << event;
}

static __always_inline void lose(struct pmu_cpu *cpu, u32 event)
{
	cpu->known &= ~(1ULL << event);
	count_lost(LOST_READ, 1);
}

static __always_inline void read_count(void *array, struct pmu_cpu *cpu, u32 event, struct pmu_cgroup *total)
{
	s64 count = bpf_perf_event_read(array, BPF_F_CURRENT_CPU);

	if (count < 0 && count >= -MAX_ERRNO)
		lose(cpu, event);
	else
		advance(cpu, event, count, total);
}

/* The same with the event's times, which cost as much again. */
static __always_inline void read_times(void *array, struct pmu_cpu *cpu, u32 event, struct pmu_cgroup *total)
{
	struct bpf_perf_event_value value;

	if (bpf_perf_event_read_value(array, BPF_F_CURRENT_CPU, &value, sizeof(value))) {
		lose(cpu, event);
		return;
	}
	advance(cpu, event, value.counter, total);
	cpu->enabled_ns[event] = value.enabled;
	cpu->running_ns[event] = value.running;
}

#define READ_ALL(read, cpu, total)                                                                                    \
	do {                                                                                                          \
		if (open_events & 1 << CYCLES)                                                                        \
			read(&cycles, cpu, CYCLES, total);                                                            \
		if (open_events & 1 << INSTRUCTIONS)                                                                  \
			read(&instructions, cpu, INSTRUCTIONS, total);                                                \
		if (open_events & 1 << LLC_REFERENCES)                                                                \
			read(&llc_references, cpu, LLC_REFERENCES, total);                                            \
		if (open_events & 1 << LLC_MISSES)                                                                    \
			read(&llc_misses, cpu, LLC_MISSES, total);                                                    \
	} while (0)

static __always_inline bool is_filtering(void)
{
	u32 first = 0, *on = bpf_map_lookup_elem(&filtering, &first);

	return on && *on;
}

/* Record that the growth since the last reading belongs to, its time already charged; NULL where it is dropped, as when
 * `leaves` is not the task that was thought to hold the CPU: it moved to another cgroup, or the kernel hid its coming.
 */
static __always_inline struct pmu_cgroup *charge_holder(struct pmu_cpu *cpu, u64 leaves, u64 now)
{
	u64 holder = cpu->cgroup, since = cpu->since_ns;
	struct pmu_cgroup *total;

	cpu->since_ns = now;
	cpu->passes++;
	if (holder != leaves) {
		if (since)
			count_lost(LOST_UNSEEN_NS, now - since);
		return NULL;
	}
	if (!holder)
		return NULL;
	total = lookup_or_init(&cgroups, &holder, &zero_cgroup);
	if (total)
		total->enabled_ns += now - since;
	else
		count_lost(LOST_CGROUP, 1);
	return total;
}

static __always_inline u64 cgroup_of(struct task_struct *task)
{
	return task->pid ? task_cgroup(task) : IDLE_ID;
}

/* The cgroup if it is measured, else idle. */
static __always_inline u64 watched(u64 cgroup)
{
	if (!cgroup || !is_filtering())
		return cgroup;
	return bpf_map_lookup_elem(&focused, &cgroup) ? cgroup : IDLE_ID;
}

static __always_inline struct pmu_cpu *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 from = cgroup_of(prev), to = cgroup_of(next);
	u64 comes = watched(to), leaves = from == to ? comes : watched(from);
	struct pmu_cpu *cpu = this_cpu();
	struct pmu_cgroup *total;

	if (!cpu || (comes == leaves && cpu->cgroup == leaves))
		return 0;
	total = charge_holder(cpu, leaves, bpf_ktime_get_ns());
	READ_ALL(read_count, cpu, total);
	cpu->cgroup = comes;
	return 0;
}

SEC("raw_tp")
int settle(void *ctx)
{
	struct pmu_cpu *cpu = this_cpu();
	u64 holder = watched(cgroup_of(bpf_get_current_task_btf()));
	struct pmu_cgroup *total;

	if (!cpu)
		return 0;
	total = charge_holder(cpu, holder, bpf_ktime_get_ns());
	READ_ALL(read_times, cpu, total);
	cpu->cgroup = holder;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
