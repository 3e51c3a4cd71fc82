/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel types our programs read, with only the fields they read. CO-RE finds each field in the running
 * kernel at load, so nothing here depends on the kernel the object is built on. A triple underscore marks a
 * flavour: the same kernel type with a field of another version. */
#ifndef KOORD_KERNEL_BPF_H
#define KOORD_KERNEL_BPF_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define KERNEL_TYPE __attribute__((preserve_access_index))

#define PF_KTHREAD 0x00200000

/* Begins a function of probes/c that is one BPF subprogram, verified for each call but not copied to it. */
#define SUBPROGRAM static __noinline

/* The same, verified once for all calls: its arguments are any numbers, its pointers may be NULL. */
#define GLOBAL_SUBPROGRAM __noinline

enum cgroup_subsys_id { cpu_cgrp_id = 1, memory_cgrp_id = 4, io_cgrp_id = 3 };

struct kernfs_node {
	u64 id;
} KERNEL_TYPE;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} KERNEL_TYPE;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[14];
	int level;
} KERNEL_TYPE;

struct css_set {
	struct cgroup_subsys_state *subsys[14];
	struct cgroup *dfl_cgrp;
} KERNEL_TYPE;

struct cfs_bandwidth {
	u64 quota;
	u64 throttled_time;
} KERNEL_TYPE;

struct cfs_rq;

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_rq **cfs_rq;
	struct cfs_bandwidth cfs_bandwidth;
} KERNEL_TYPE;

struct list_head {
	struct list_head *prev;
} KERNEL_TYPE;

struct rq {
	unsigned int nr_running;
	struct list_head cfs_tasks; /* the one that was queued or picked last comes first */
	u64 clock;
	u64 clock_task;
	u64 clock_pelt;
	unsigned long lost_idle_time;
} KERNEL_TYPE;

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	int runtime_enabled;
	int throttled;
	int throttle_count;
	u64 throttled_clock;
	u64 throttled_clock_self;
	u64 throttled_clock_self_time;
	u64 throttled_clock_pelt;
	u64 throttled_clock_pelt_time;
	u64 throttled_clock_task;
	u64 throttled_clock_task_time;
} KERNEL_TYPE;

struct sched_entity {
	u64 sum_exec_runtime;
	u64 prev_sum_exec_runtime; /* when the task was picked */
	struct list_head group_node;
	unsigned char sched_delayed; /* since 6.12: sleeps, and is kept on its queue for a while */
	struct cfs_rq *cfs_rq;
} KERNEL_TYPE;

struct sched_info {
	u64 run_delay;	 /* all that the task has waited on run queues, but for the present wait */
	u64 last_queued; /* by the run queue's clock; 0 when the task does not wait */
} KERNEL_TYPE;

struct thread_info {
	u32 cpu;
} KERNEL_TYPE;

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	int prio;
	int pid;
	int tgid;
	bool throttled;
	struct task_struct *group_leader;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	struct css_set *cgroups;
} KERNEL_TYPE;

/* before 5.14, commit 2f064a59a11f */
struct task_struct___state {
	long state;
} KERNEL_TYPE;

/* before 5.16, commit bcf9033e5449 */
struct task_struct___cpu {
	u32 cpu;
} KERNEL_TYPE;

/* since 7.2 */
struct task_struct___narrow {
	u8 on_cpu;
	u8 on_rq;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct task_struct *task;
} KERNEL_TYPE;

struct bpf_iter__bpf_map_elem {
	void *value;
} KERNEL_TYPE;

#endif
