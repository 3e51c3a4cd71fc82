/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Map idioms of all probes: lookup-or-init, and counters of what was lost. */
#ifndef KOORD_MAPS_BPF_H
#define KOORD_MAPS_BPF_H

#include "kernel.bpf.h"

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
