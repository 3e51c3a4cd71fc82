/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packet and device types that the network programs read, and the records they keep. */
#ifndef KOORD_NET_BPF_H
#define KOORD_NET_BPF_H

#include "maps.bpf.h"
#include "log2.h"
#include "owner.bpf.h"

enum lost_place { LOST_CGROUP, LOST_REASON, LOST_STAMP, UNKEYED_PACKETS, UNKEYED_DROPS, UNKEYED_RX_NS, LOST_PLACES };

enum skb_drop_reason { SKB_CONSUMED, SKB_DROP_REASON_QUEUE_PURGE };

struct Qdisc {
	int (*enqueue)(void);
	unsigned int flags;
} KERNEL_TYPE;

struct netdev_queue {
	struct Qdisc *qdisc;
} KERNEL_TYPE;

struct net_device {
	struct netdev_queue *_tx;
} KERNEL_TYPE;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	struct sock *sk;
} KERNEL_TYPE;

struct net_cgroup {
	u64 retransmits;
	u64 drops;
	u64 rx_ns;
	u64 qdisc_ns;
	u64 qdisc_packets;
	u64 qdisc_hist[SLOTS];
};

struct net_drop {
	u64 cgroup;
	u64 reason;
};

struct net_cpu {
	u64 softirq;	/* vector being handled, plus one; 0 for none */
	u64 segment_ns; /* start of the packet that is being received */
	u64 receiver;	/* owner of the socket it reached, NO_OWNER if none yet */
	u64 send_skb;	/* packet on its way to a device's queue */
	u64 send_ns;
	u64 send_owner;
};

struct net_stamp {
	u64 since_ns;
	u64 owner;
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
	__uint(max_entries, 32768);
	__type(key, u64);
	__type(value, struct net_stamp);
} stamps SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct net_cgroup zero_cgroup;
static const u64 zero;

static __always_inline struct net_cpu *this_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct net_cgroup *stats_of(u64 cgroup)
{
	struct net_cgroup *stats = lookup_or_init(&cgroups, &cgroup, &zero_cgroup);

	if (!stats)
		count_lost(LOST_CGROUP, 1);
	return stats;
}

#endif
