/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The way of a packet through the host: who sent it, though a network namespace's border or the IP stack took its socket
 * away.
 *
 * A packet that comes in by a pair of interfaces (veth, netkit) still has its sender's socket. It is remembered while
 * this CPU handles the packet, and for the interface, in case that packets are handled in batches. The packet is then
 * routed, or bridged, or wrapped into another, and comes to a device's queue without a socket: mostly in the same
 * interrupt, and else with the interface's number on it.
 */
#ifndef KOORD_NET_PATH_BPF_H
#define KOORD_NET_PATH_BPF_H

#include "net.bpf.h"

#define PASSING_NS 1000000000ULL /* a packet that is not seen to leave the backlog gives its place free after this */

static __always_inline struct net_interface interface_of(const struct net_device *dev)
{
	struct net_interface interface = {.net = (u64)dev->nd_net.net, .index = (u32)dev->ifindex};

	return interface;
}

/* Return whether what is sent by this device comes out of another one. */
static __always_inline bool is_paired(const struct net_device *dev)
{
	const struct rtnl_link_ops *ops = dev->rtnl_link_ops;
	char kind[8] = {};

	if (!ops)
		return false;
	bpf_probe_read_kernel_str(kind, sizeof(kind), ops->kind);
	if (kind[0] == 'v')
		return kind[1] == 'e' && kind[2] == 't' && kind[3] == 'h' && !kind[4];
	return kind[0] == 'n' && kind[1] == 'e' && kind[2] == 't' && kind[3] == 'k';
}

static __always_inline void teach_sender(struct net_cpu *cpu, const struct net_device *dev, u64 owner)
{
	struct net_interface interface;
	struct net_end *end;

	if (!dev || (cpu->taught[0] == (u64)dev && cpu->taught[1] == owner) || !is_paired(dev))
		return;
	interface = interface_of(dev);
	end = lookup_or_init(&ends, &interface, &zero_end);
	if (!end)
		return;
	end->sender = owner;
	cpu->taught[0] = (u64)dev;
	cpu->taught[1] = owner;
}

static __always_inline void teach_user(struct net_cpu *cpu, const struct net_device *dev, u64 owner)
{
	struct net_interface interface;
	struct net_end *end;

	if (!dev || (cpu->taught[2] == (u64)dev && cpu->taught[3] == owner) || !is_paired(dev))
		return;
	interface = interface_of(dev);
	end = lookup_or_init(&ends, &interface, &zero_end);
	if (!end)
		return;
	end->user = owner;
	cpu->taught[2] = (u64)dev;
	cpu->taught[3] = owner;
}

static __always_inline u64 sender_behind(const struct net_interface *interface)
{
	struct net_end *end = bpf_map_lookup_elem(&ends, interface);

	return end ? end->sender : NO_OWNER;
}

/* Sender of a packet that has no socket any more. */
static __always_inline u64 routed_sender(struct net_cpu *cpu, struct sk_buff *skb)
{
	struct net_interface interface;
	u64 owner = NO_OWNER;

	if (cpu->arrived_skb == (u64)skb) {
		if (cpu->sender != NO_OWNER)
			return cpu->sender;
		interface = cpu->arrived;
		owner = sender_behind(&interface);
	}
	if (owner != NO_OWNER || !skb->skb_iif || !skb->dev)
		return owner;
	interface.net = (u64)skb->dev->nd_net.net;
	interface.index = (u32)skb->skb_iif;
	return sender_behind(&interface);
}

static __always_inline struct net_passing *place_of(u64 skb)
{
	u32 place = ((skb >> 6) ^ (skb >> 18)) & (PASSING - 1);

	return bpf_map_lookup_elem(&passing, &place);
}

static __always_inline void enter_backlog(u64 skb, u64 sender, u64 now)
{
	struct net_passing *place = place_of(skb);

	if (!place || (place->skb && place->skb != skb && now - place->since_ns < PASSING_NS))
		return;
	place->skb = skb;
	place->since_ns = now;
	place->sender = sender;
}

/* A packet enters a stack: note where it came from. It does so twice where it goes up from a bridge's port. */
static __always_inline void arrive(struct net_cpu *cpu, struct sk_buff *skb, u64 now)
{
	struct net_passing *place = place_of((u64)skb);
	struct net_device *dev = skb->dev;
	struct sock *sk = skb->sk;

	if (place && place->skb == (u64)skb) {
		cpu->waited_ns = now - place->since_ns;
		cpu->sender = place->sender;
		place->skb = 0;
	} else if (cpu->arrived_skb == (u64)skb) {
		return;
	} else {
		cpu->waited_ns = 0;
		cpu->sender = NO_OWNER;
	}
	cpu->arrived_skb = (u64)skb;
	cpu->arrived = interface_of(dev);
	if (!sk)
		return;
	cpu->sender = owner_of(sk);
	if (cpu->sender != NO_OWNER)
		teach_sender(cpu, dev, cpu->sender);
}

#endif
