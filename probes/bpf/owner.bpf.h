/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Owner of a socket: the cgroup of the task that last used it, kept with the socket, because its packets are mostly
 * handled where current is an arbitrary task. The kernel's own pointer on the socket names a cgroup of the v2
 * hierarchy, which holds the cpu controller only where everything is v2; it is used where no task was seen using the
 * socket. */
#ifndef KOORD_OWNER_BPF_H
#define KOORD_OWNER_BPF_H

#include "socket.bpf.h"

#define NO_OWNER 0
#define V2_LEVELS 12

#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

struct net_owner {
	u64 cgroup;
};

/* Cloned from a listener to the connections it accepts. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct net_owner);
} owners SEC(".maps");

static __always_inline void own(struct sock *sk, struct task_struct *task)
{
	struct net_owner *owner;

	if (is_kernel_thread(task) || !task->pid)
		return;
	owner = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		owner->cgroup = task_cgroup(task);
}

/* Request and time-wait sockets are shorter than a sock. */
static __always_inline bool is_full(const struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;

	return state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV;
}

static __always_inline u64 v2_cgroup(struct sock *sk)
{
	int cpu_id = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;
	u64 id;

	for (int level = 0; level < V2_LEVELS && cgroup; level++) {
		if (cgroup->subsys[cpu_id]) {
			id = cgroup->kn->id;
			barrier_var(id); /* keeps the compiler from sharing the load with one of another kind of pointer */
			return id;
		}
		if (!cgroup->self.parent)
			break;
		cgroup = cgroup->self.parent->cgroup;
	}
	return NO_OWNER;
}

static __always_inline u64 owner_of(struct sock *sk)
{
	struct net_owner *owner;
	u64 id;

	if (!sk || !is_inet(sk) || !is_full(sk))
		return NO_OWNER;
	owner = bpf_sk_storage_get(&owners, sk, NULL, 0);
	id = owner ? owner->cgroup : NO_OWNER;
	barrier_var(id);
	return id ? id : v2_cgroup(sk);
}

#endif
