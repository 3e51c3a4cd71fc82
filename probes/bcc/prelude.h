/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Put before each program: the definitions of kernel, maps and cgroup.bpf.h, over the kernel's own headers.
 *
 * BCC rewrites `map.lookup()` and the like only in a function's own text, never in a macro. */
#include <linux/sched.h>
#include <linux/cgroup-defs.h>
#include <linux/kernfs.h>
#include <linux/version.h>

#define SUBPROGRAM static __always_inline /* BCC links no calls between functions */
#define GLOBAL_SUBPROGRAM SUBPROGRAM

#include "identity.h"
#include "log2.h"

#define PEEK(field)                                                                                                   \
	({                                                                                                            \
		typeof(field) read_value;                                                                             \
		bpf_probe_read_kernel(&read_value, sizeof(read_value), &(field));                                     \
		read_value;                                                                                           \
	})

#define COUNT(target, amount) ((target) += (amount)) /* all maps are per CPU */

BPF_PERCPU_ARRAY(lost, u64, NUM_LOST_PLACES);

static __always_inline void count_lost(u32 place, u64 amount)
{
	int key = place;
	u64 *value = lost.lookup(&key);

	if (value)
		*value += amount;
}

static __always_inline struct cgroup *cpu_cgroup(struct task_struct *task)
{
	struct css_set *set = PEEK(task->cgroups);
	struct cgroup_subsys_state *state = PEEK(set->subsys[cpu_cgrp_id]);

	return PEEK(state->cgroup);
}

static __always_inline u64 cgroup_of(struct task_struct *task)
{
	struct cgroup *cgroup = cpu_cgroup(task);
	struct kernfs_node *node = PEEK(cgroup->kn);

	return PEEK(node->id);
}

static __always_inline bool is_kernel_thread(struct task_struct *task)
{
	return PEEK(task->flags) & PF_KTHREAD;
}

static __always_inline bool serves_kernel(struct task_struct *task)
{
	struct cgroup *cgroup = cpu_cgroup(task);

	return is_kernel_thread(task) && !PEEK(cgroup->level);
}

static __always_inline u64 task_identity(struct task_struct *task, u64 cgroup)
{
	return serves_kernel(task) ? KERNEL_ID : cgroup;
}
