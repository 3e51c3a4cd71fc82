/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Map idioms of all probes: lookup-or-init, and counters of what was lost. */
#ifndef KOORD_MAPS_BPF_H
#define KOORD_MAPS_BPF_H

#include "kernel.bpf.h"

#define MAX_CPUS 1024

/* On a machine of many CPUs the large maps are no per-CPU maps, whose every entry has a value for each CPU, but plain
 * hashes that groups of CPUs share: one entry by cgroup and shard (probes/shared_maps.py). 0: per-CPU maps.
 */
const volatile u32 shards = 0;
const volatile u8 shard_of_cpu[MAX_CPUS] = {};

/* Add to a value of such a map. */
#define COUNT(target, amount)                                                                                         \
	do {                                                                                                          \
		if (shards)                                                                                           \
			__sync_fetch_and_add(&(target), amount);                                                      \
		else                                                                                                  \
			(target) += (amount);                                                                         \
	} while (0)

/* Key of a cgroup on this CPU; ids that are no cgroup have all upper bits set and one entry. */
static __always_inline u64 sharded(u64 id)
{
	if (!shards || id >> 56)
		return id;
	return id | (u64)shard_of_cpu[bpf_get_smp_processor_id() & (MAX_CPUS - 1)] << 56;
}

/* Losses by place, one per-CPU counter each; probes name their places in an enum that ends in LOST_PLACES. */
#define LOST_MAP(places)                                                                                              \
	struct {                                                                                                      \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                              \
		__uint(max_entries, places);                                                                          \
		__type(key, u32);                                                                                     \
		__type(value, u64);                                                                                   \
	} lost SEC(".maps")

#define count_lost(place, amount)                                                                                     \
	do {                                                                                                          \
		u32 lost_key = (place);                                                                               \
		u64 *lost_value = bpf_map_lookup_elem(&lost, &lost_key);                                              \
		if (lost_value)                                                                                       \
			__sync_fetch_and_add(lost_value, amount); /* an interrupt's program may come between */       \
	} while (0)

/* Pointer to the value of `key`, made from `zero` if absent; NULL when the map is full. */
static __always_inline void *lookup_or_init(void *map, const void *key, const void *zero)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (value)
		return value;
	bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

#endif
