/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Slot of a duration in a log2 histogram (api/histogram.py has the same arithmetic). */
#ifndef KOORD_LOG2_H
#define KOORD_LOG2_H

#define SLOTS 26

static __always_inline u32 log2_slot(u64 duration_ns)
{
	u64 v = duration_ns >> 9;
	u32 slot = 0;

	if (!v)
		return 0;
	if (v >> 32) {
		v >>= 32;
		slot += 32;
	}
	if (v >> 16) {
		v >>= 16;
		slot += 16;
	}
	if (v >> 8) {
		v >>= 8;
		slot += 8;
	}
	if (v >> 4) {
		v >>= 4;
		slot += 4;
	}
	if (v >> 2) {
		v >>= 2;
		slot += 2;
	}
	if (v >> 1)
		slot += 1;
	return slot < SLOTS ? slot : SLOTS - 1;
}

#endif
