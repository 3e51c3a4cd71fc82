/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* State of a send queue: how many bytes each cgroup has in it, and a packet's wait shared out by the bytes ahead of it.
 *
 * Bytes are counted on SEATS seats, each held by one cgroup. A newcomer takes a seat without bytes, else that of the
 * cgroup with the fewest if its own packet is larger: the heaviest users of a queue are named.
 *
 * A program that includes this defines add_blame.
 */
#ifndef KOORD_SEND_QUEUE_H
#define KOORD_SEND_QUEUE_H

#include "identity.h"

#define SEATS 15
#define OTHERS SEATS /* the count of cgroups without a seat */
#define PLACES 16    /* a power of two */
#define NO_OWNER 0

#define STALE_NS 10000000000ULL /* a queue without any event for so long holds nothing */

struct net_queue {
	u64 moved_ns; /* the last packet that came */
	u64 owners[PLACES];
	u64 owner_ns[PLACES]; /* when the cgroup took the seat */
	s32 bytes[PLACES];    /* may dip below zero after a missed event */
};

struct net_stamp {
	u64 since_ns;
	u64 owner;
	u64 queue;
	u64 paced_ns; /* of the wait, what the sender asked for */
	u32 bytes;
	u32 seat;
	u32 ahead[PLACES];
};

struct net_pair {
	u64 victim;
	u64 culprit;
};

static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns);

/* Bytes of a seat, 0 if the count is below zero. Without branches, which would multiply the verifier's paths. */
static __always_inline u32 bytes_of(struct net_queue *queue, u32 seat)
{
	s32 bytes = queue->bytes[seat & (PLACES - 1)], negative = bytes >> 31;

	asm volatile("" : "+r"(negative)); /* else the compiler makes it a branch */
	return bytes & ~negative;
}

/* Scale all counts down to what the queue holds: events were missed, or the queue splits packets. */
GLOBAL_SUBPROGRAM int correct_queue(struct net_queue *queue, u64 held_bytes)
{
	u64 total = 0;

	if (!queue)
		return 0;
	for (u32 i = 0; i < PLACES; i++)
		total += bytes_of(queue, i);
	if (total <= held_bytes)
		return 0;
	for (u32 i = 0; i < PLACES; i++)
		queue->bytes[i] = bytes_of(queue, i) * held_bytes / total;
	return 0;
}

/* The seat of a cgroup, taken where there is a free one or the packet is larger than all that its holder has. */
static __always_inline u32 seat_for(struct net_queue *queue, u64 owner, u32 bytes, u64 now)
{
	u32 seat = OTHERS, least = ~0U, amount;

	if (owner == NO_OWNER)
		return OTHERS;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < SEATS; i++) {
		if (queue->owners[i] == owner)
			return i;
		amount = bytes_of(queue, i);
		if (amount < least) {
			least = amount;
			seat = i;
		}
	}
	if (least && least >= bytes) /* 0: the seat is free */
		return OTHERS;
	seat &= PLACES - 1;
	__sync_fetch_and_add(&queue->bytes[OTHERS], least);
	queue->bytes[seat] = 0;
	queue->owners[seat] = owner;
	queue->owner_ns[seat] = now;
	return seat;
}

/* Note what is ahead of a packet that enters the queue, and count it. */
GLOBAL_SUBPROGRAM int enter_queue(struct net_queue *queue, struct net_stamp *stamp, u64 now)
{
	u32 seat;

	if (!queue || !stamp)
		return 0;
	if (now - queue->moved_ns > STALE_NS)
		for (u32 i = 0; i < PLACES; i++)
			queue->bytes[i] = 0;
	queue->moved_ns = now;
	seat = seat_for(queue, stamp->owner, stamp->bytes, stamp->since_ns) & (PLACES - 1);
	stamp->seat = seat;
	for (u32 i = 0; i < PLACES; i++)
		stamp->ahead[i] = bytes_of(queue, i);
	__sync_fetch_and_add(&queue->bytes[seat], stamp->bytes);
	return 0;
}

/* The seat on which a packet counts: that of its cgroup, unless another cgroup took it since. */
static __always_inline u32 seat_of(struct net_queue *queue, u32 seat, u64 since_ns)
{
	seat &= PLACES - 1;
	return seat < SEATS && queue->owner_ns[seat] <= since_ns ? seat : OTHERS;
}

static __always_inline void leave_queue(struct net_queue *queue, struct net_stamp *stamp)
{
	u32 seat = seat_of(queue, stamp->seat, stamp->since_ns) & (PLACES - 1);

	__sync_fetch_and_add(&queue->bytes[seat], -stamp->bytes);
}

/* Share a wait out by the bytes that were ahead; returns the part that is others'. Its own bytes and those of the
 * cgroup's earlier packets are its own doing, and so is what the sender asked for. */
GLOBAL_SUBPROGRAM u64 share_wait(struct net_queue *queue, struct net_stamp *stamp, u64 wait_ns)
{
	u64 total, others_ns = 0, part, culprit;

	if (!queue || !stamp)
		return 0;
	total = stamp->bytes;
	for (u32 i = 0; i < PLACES; i++)
		total += stamp->ahead[i];
	if (!total || wait_ns <= stamp->paced_ns)
		return 0;
	wait_ns -= stamp->paced_ns;
	for (u32 i = 0; i < PLACES; i++) {
		if (!stamp->ahead[i] || (i == stamp->seat && i < SEATS))
			continue;
		part = wait_ns * stamp->ahead[i] / total;
		others_ns += part;
		culprit = OTHER_ID;
		if (i < SEATS && queue->owner_ns[i] <= stamp->since_ns)
			culprit = queue->owners[i];
		add_blame(stamp->owner, culprit, part);
	}
	return others_ns;
}

#endif
