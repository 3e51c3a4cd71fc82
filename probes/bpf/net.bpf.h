/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packet and device types that the network programs read, and the records they keep. */
#ifndef KOORD_NET_BPF_H
#define KOORD_NET_BPF_H

#include "maps.bpf.h"
#include "log2.h"
#include "owner.bpf.h"
#include "send_queue.h"

enum lost_place {
	LOST_CGROUP,
	LOST_REASON,
	LOST_STAMP,
	LOST_BLAME_NS,
	UNKEYED_PACKETS,
	UNKEYED_DROPS,
	UNKEYED_RX_NS,
	LOST_PLACES
};

#define PASSING 4096

enum skb_drop_reason { SKB_CONSUMED, SKB_DROP_REASON_QUEUE_PURGE };

struct qdisc_skb_head {
	u32 qlen;
} KERNEL_TYPE;

struct gnet_stats_queue {
	u32 backlog;
} KERNEL_TYPE;

struct Qdisc {
	int (*enqueue)(void);
	unsigned int flags;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} KERNEL_TYPE;

struct netdev_queue {
	struct Qdisc *qdisc;
} KERNEL_TYPE;

struct rtnl_link_ops {
	const char *kind;
} KERNEL_TYPE;

struct net_device {
	struct netdev_queue *_tx;
	int ifindex;
	possible_net_t nd_net;
	const struct rtnl_link_ops *rtnl_link_ops;
} KERNEL_TYPE;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	struct sock *sk;
	u64 skb_mstamp_ns;
	unsigned int len;
	int skb_iif;
} KERNEL_TYPE;

struct net_cgroup {
	u64 retransmits;
	u64 drops;
	u64 rx_ns;
	u64 own_rx_ns;	   /* receive interrupts on top of the cgroup's tasks for packets that it sent or received */
	u64 unkeyed_rx_ns; /* and for packets of unknown sockets */
	u64 deferred_ns;   /* receive interrupts that kernel threads handled for packets that it sent or received */
	u64 backlog_ns;
	u64 backlog_packets;
	u64 qdisc_ns;
	u64 qdisc_self_ns; /* of it, what no other cgroup's packets are to blame for */
	u64 qdisc_packets;
	u64 qdisc_hist[SLOTS];
};

struct net_drop {
	u64 cgroup;
	u64 reason;
};

/* An interface, in whatever network namespace. */
struct net_interface {
	u64 net;
	u64 index;
};

struct net_cpu {
	u64 softirq;	/* vector being handled, plus one; 0 for none */
	u64 segment_ns; /* start of the packet that is being received */
	u64 receiver;	/* owner of the socket it reached, NO_OWNER if none yet */
	u64 sender;	/* owner of the socket it was sent from, where that is on this host */
	u64 robbed;	/* cgroup of the task under the receive interrupt, NO_OWNER for the kernel's */
	u64 deferred;	/* whether that task is a kernel thread, as ksoftirqd */
	u64 before_ns;	/* of the receive interrupt, before its first packet */
	u64 waited_ns;	/* the packet's wait in the backlog */
	u64 arrived_skb;
	struct net_interface arrived; /* first interface on which it arrived */
	u64 send_skb;		      /* packet on its way to a device */
	u64 send_ns;
	u64 send_owner;
	u64 send_paced_ns;
	u64 send_bytes;
	u64 taught[4]; /* device and owner that were kept last, as sender and as user */
};

/* What is known of the sockets behind an interface of a pair. */
struct net_end {
	u64 sender; /* owner of the last packet that was sent at the pair's other end */
	u64 user;   /* owner of the last packet that was sent at this end */
};

/* A packet in a CPU's backlog. */
struct net_passing {
	u64 skb;
	u64 since_ns;
	u64 sender;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, struct net_cgroup);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct net_drop);
	__type(value, u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct net_cpu);
} cpus SEC(".maps");

/* Packets in send queues, by address. One that leaves unseen (a queue that splits it) is overwritten on reuse. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct net_stamp);
} stamps SEC(".maps");

/* Send queues, by address: those in use. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct net_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct net_pair);
	__type(value, u64);
} blame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct net_interface);
	__type(value, struct net_end);
} ends SEC(".maps");

/* Packets in backlogs, at a place by address; one that finds its place taken is not followed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PASSING);
	__type(key, u32);
	__type(value, struct net_passing);
} passing SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct net_cgroup zero_cgroup;
static const struct net_queue zero_queue;
static const struct net_end zero_end;
static const u64 zero;

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns)
{
	struct net_pair pair = {.victim = victim, .culprit = culprit};
	u64 *total = lookup_or_init(&blame, &pair, &zero);

	if (total)
		COUNT(*total, ns);
	else
		count_lost(LOST_BLAME_NS, ns);
}

static __always_inline struct net_cpu *this_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct net_cgroup *stats_of(u64 cgroup)
{
	u64 key = sharded(cgroup);
	struct net_cgroup *stats = lookup_or_init(&cgroups, &key, &zero_cgroup);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

#endif
