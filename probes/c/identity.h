/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Identities of culprits that are not cgroups; those that reach a table are in api/frame.py too. */
#ifndef KOORD_IDENTITY_H
#define KOORD_IDENTITY_H

#define IDLE_ID 0ULL
#define KERNEL_ID 0xFFFFFFFFFFFFFFFFULL
#define OTHER_ID 0xFFFFFFFFFFFFFFFEULL
#define UNSEEN_ID 0xFFFFFFFFFFFFFFFDULL /* a task that ran without being seen to come or leave */
#define SWAP_OUT_ID 0xFFFFFFFFFFFFFFFCULL /* reclaim of the whole node, which writes to swap: of those who take pages */

#endif
