/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The socket types our programs read, and the one way to reach every open socket: through the files of all tasks,
 * which finds those of every network namespace. */
#ifndef KOORD_SOCKET_BPF_H
#define KOORD_SOCKET_BPF_H

#include "cgroup.bpf.h"
#include "kernel.bpf.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_CLOSE_WAIT 8
#define TCP_LISTEN 10

struct net;

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
} KERNEL_TYPE;

struct sock_cgroup_data {
	struct cgroup *cgroup;
} KERNEL_TYPE;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
} KERNEL_TYPE;

struct tcp_sock {
	u32 write_seq;
} KERNEL_TYPE;

struct socket {
	struct sock *sk;
} KERNEL_TYPE;

struct file;

struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
} KERNEL_TYPE;

static __always_inline bool is_inet(const struct sock *sk)
{
	unsigned short family = sk->__sk_common.skc_family;

	return family == AF_INET || family == AF_INET6;
}

/* The internet socket behind a file of a task_file iteration, NULL where it is something else. */
static __always_inline struct sock *inet_socket(struct file *file)
{
	struct socket *socket;
	struct sock *sk;

	if (!file)
		return NULL;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return NULL;
	sk = socket->sk;
	return sk && is_inet(sk) ? sk : NULL;
}

#endif
