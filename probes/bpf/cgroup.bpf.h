/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Cgroup of a task: always by the cpu controller, which is right on cgroup v1, hybrid and v2. */
#ifndef KOORD_CGROUP_BPF_H
#define KOORD_CGROUP_BPF_H

#include "identity.h"
#include "kernel.bpf.h"

/* Kernfs id of the task's cpu cgroup; for BTF-typed (trusted) task pointers. */
static __always_inline u64 task_cgroup(struct task_struct *task)
{
	int cpu_id = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);

	return task->cgroups->subsys[cpu_id]->cgroup->kn->id;
}

static __always_inline bool is_kernel_thread(struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

/* Whether a task does the kernel's own work. A kernel thread outside the root cgroup was put there to work for that
 * cgroup: a virtual machine's vhost workers before 6.4, its kvm threads, or one that an administrator moved. */
static __always_inline bool serves_kernel(struct task_struct *task)
{
	int cpu_id = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);

	return is_kernel_thread(task) && !task->cgroups->subsys[cpu_id]->cgroup->level;
}

/* Identity of a task as a culprit. */
static __always_inline u64 task_identity(struct task_struct *task, u64 cgroup)
{
	return serves_kernel(task) ? KERNEL_ID : cgroup;
}

#endif
