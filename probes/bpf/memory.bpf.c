// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Memory stalls of each cgroup's tasks by cause: its own limit, an ancestor's limit, the whole node being
 * short, or compaction. Begin and end of a stall run in the stalled task, so one stamp a task suffices: reclaim never
 * runs within reclaim, and compaction within reclaim belongs to that. While the node is short, page allocations are
 * counted by cgroup, for the blame.
 *
 * Stamps and sums live in preallocated maps, because a task that stalls for memory is the wrong one to allocate any;
 * sums are shared by all CPUs and added to atomically, because a stall lasts long and is rare beside its cost.
 */
#include "cgroup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"
#include "memory_stalls.h"
#include "reclaim.bpf.h"

#define SIGKILL 9

struct compact_control {
	bool direct_compaction;
} KERNEL_TYPE;

struct page;

struct stall {
	u64 since_ns;
	u64 cgroup;
	u32 cause;
	u32 again; /* the second program has seen it begin */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct stall);
} stalls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct memory_cgroup);
} cgroups SEC(".maps");

/* Pages taken by each cgroup or the kernel while the node was short. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u64);
} allocators SEC(".maps");

/* Cgroups of processes just sent SIGKILL, by process id; for kernels whose mark_victim knows only the id. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u64);
} sent_sigkill SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} kswapd_wakes SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct memory_cgroup zero_cgroup;
static const u64 zero;

/* The node is short of memory while any task reclaims globally or any node's kswapd is awake. */
static u64 reclaiming;
static u64 kswapds_awake;

static __always_inline struct memory_cgroup *cgroup_stats(u64 cgroup)
{
	struct memory_cgroup *stats = lookup_or_init(&cgroups, &cgroup, &zero_cgroup);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

/* A stamp found here is either of this very begin, by the first program, or its end was missed. */
static __always_inline int begin_stall(struct task_struct *task, u32 cause, bool again)
{
	struct stall fresh = {.since_ns = bpf_ktime_get_ns(), .cause = cause, .again = again};
	u32 pid = task->pid;
	struct stall *old = bpf_map_lookup_elem(&stalls, &pid);

	if (again && old && !old->again) {
		old->again = true;
		return 0;
	}
	if (old && old->cause == GLOBAL)
		__sync_fetch_and_add(&reclaiming, -1);
	fresh.cgroup = task_cgroup(task);
	if (bpf_map_update_elem(&stalls, &pid, &fresh, BPF_ANY))
		count_lost(LOST_STAMP, 1);
	else if (cause == GLOBAL)
		__sync_fetch_and_add(&reclaiming, 1);
	return 0;
}

static __always_inline int end_stall(void)
{
	u32 pid = bpf_get_current_pid_tgid();
	struct stall *stall = bpf_map_lookup_elem(&stalls, &pid), ended;

	if (!stall) /* begun before we were there, or ended by the first program */
		return 0;
	ended = *stall;
	if (ended.cause == GLOBAL)
		__sync_fetch_and_add(&reclaiming, -1);
	stall->cause = NOT_A_STALL; /* it has ended, should the deletion fail */
	if (bpf_map_delete_elem(&stalls, &pid))
		count_lost(LOST_STAMP, 1);
	account_stall(ended.cgroup, ended.cause, bpf_ktime_get_ns() - ended.since_ns);
	return 0;
}

/* Cause of a stall by the limit's owner. Reclaim of a cgroup the task is not under is work done on request
 * (memory.reclaim, a limit written from outside), not a stall for memory. */
static __always_inline u32 limit_cause(struct task_struct *task)
{
	int memory_id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *state = task->cgroups->subsys[memory_id];
	struct reclaim_state *reclaim = reclaim_state(task);
	struct mem_cgroup *target = reclaim ? reclaim_target(reclaim) : NULL;
	struct cgroup *limited = target ? BPF_CORE_READ(target, css.cgroup) : NULL;
	u32 cause = OWN_LIMIT;

	if (!limited)
		return OWN_LIMIT;
	for (int level = 0; level < MAX_DEPTH && state; level++) {
		if (BPF_CORE_READ(state, cgroup) == limited)
			return cause;
		cause = ANCESTOR_LIMIT;
		state = BPF_CORE_READ(state, parent);
	}
	return NOT_A_STALL;
}

static __always_inline int begin_limit(bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return is_kernel_thread(task) ? 0 : begin_stall(task, limit_cause(task), again);
}

static __always_inline int begin_global(bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return is_kernel_thread(task) ? 0 : begin_stall(task, GLOBAL, again);
}

/* Compaction that an allocation waits for; one that an administrator or kcompactd runs is no stall. Before 5.18
 * the first argument is no compact_control, and nothing is counted. */
static __always_inline int begin_compaction(struct compact_control *control, bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_kernel_thread(task) || reclaim_state(task))
		return 0;
	return begin_stall(task, BPF_CORE_READ(control, direct_compaction) ? COMPACTION : NOT_A_STALL, again);
}

static __always_inline int end_compaction(void)
{
	return reclaim_state(bpf_get_current_task_btf()) ? 0 : end_stall();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_limit_begin)
{
	return begin_limit(false);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_limit_end)
{
	return end_stall();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_global_begin)
{
	return begin_global(false);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_global_end)
{
	return end_stall();
}

/* The kernel may hold a task back until kswapd has made progress, before reclaim begins and its tracepoint fires: where
 * the host allows it, the whole function is traced instead. Every kernel may switch away from such a program, so each
 * has a second one. */
SEC("fentry/try_to_free_pages")
int BPF_PROG(on_free_begin)
{
	return begin_global(false);
}

SEC("fexit/try_to_free_pages")
int BPF_PROG(on_free_end)
{
	return end_stall();
}

SEC("fentry/try_to_free_pages")
int BPF_PROG(on_free_begin_again)
{
	return begin_global(true);
}

SEC("fexit/try_to_free_pages")
int BPF_PROG(on_free_end_again)
{
	return end_stall();
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(on_compaction_begin, struct compact_control *control)
{
	return begin_compaction(control, false);
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(on_compaction_end)
{
	return end_compaction();
}

/* The second programs, for kernels that may switch away from a program: see `again` in probes/probe.py. */
SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_limit_begin_again)
{
	return begin_limit(true);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_limit_end_again)
{
	return end_stall();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_global_begin_again)
{
	return begin_global(true);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_global_end_again)
{
	return end_stall();
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(on_compaction_begin_again, struct compact_control *control)
{
	return begin_compaction(control, true);
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(on_compaction_end_again)
{
	return end_compaction();
}

SEC("tp_btf/mm_vmscan_kswapd_wake")
int BPF_PROG(on_kswapd_wake, int node)
{
	u32 key = 0;
	u64 *wakes = bpf_map_lookup_elem(&kswapd_wakes, &key);

	if (wakes)
		*wakes += 1;
	__sync_fetch_and_or(&kswapds_awake, 1ULL << (node & 63));
	return 0;
}

SEC("tp_btf/mm_vmscan_kswapd_sleep")
int BPF_PROG(on_kswapd_sleep, int node)
{
	__sync_fetch_and_and(&kswapds_awake, ~(1ULL << (node & 63)));
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_page_alloc, struct page *page, unsigned int order, unsigned int gfp)
{
	struct task_struct *task;
	u64 taker, *pages;

	if (!reclaiming && !kswapds_awake)
		return 0;
	if (!page || !taken_by_current(order, gfp))
		return 0;
	task = bpf_get_current_task_btf();
	taker = task_identity(task, task_cgroup(task));
	pages = lookup_or_init(&allocators, &taker, &zero);
	if (pages)
		COUNT(*pages, 1ULL << (order & 31));
	else
		count_lost(LOST_PAGES, 1);
	return 0;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(on_victim, struct task_struct *victim)
{
	return count_oom_kill(task_cgroup(victim));
}

/* Older kernels name the victim by process id; it has been sent SIGKILL just before, or is current. */
SEC("tp_btf/mark_victim")
int BPF_PROG(on_victim_id, int pid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 key = pid;
	u64 *cgroup = bpf_map_lookup_elem(&sent_sigkill, &key);

	if (cgroup)
		return count_oom_kill(*cgroup);
	if (task->pid == pid)
		return count_oom_kill(task_cgroup(task));
	count_lost(LOST_VICTIM, 1);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int signal, void *info, struct task_struct *task)
{
	u32 key;
	u64 cgroup;

	if (signal != SIGKILL)
		return 0;
	key = task->pid;
	cgroup = task_cgroup(task);
	bpf_map_update_elem(&sent_sigkill, &key, &cgroup, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
