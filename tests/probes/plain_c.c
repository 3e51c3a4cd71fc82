/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Runs the headers of probes/c on numbers from standard input, for test_plain_c.py.
 *
 *	slots	each number's log2 slot
 *	charge	a wait charged to run slices: victim begin end, start of the first slice, identity that runs at the end,
 *		number of slices, then identity and end of each; prints the causes, then `blame CULPRIT NS` lines
 *	pass	the same by a pass, which may be switched away; prints also `plain N`, additions that were not atomic
 *	unseen	a slice whose begin was not seen: end of the last one, how long the leaving task ran, now; prints whether its
 *		begin is known, then begin and identity of the running slice, then the last slice of the ring
 *	seats	bios on one disk: `+ CGROUP SECOND UNITS` or `- SEAT SECOND QUEUED_SECOND`; prints the seat, then all counts
 *	excess	IOs of one class: presumed nanoseconds; number of IOs ahead, nanoseconds and second of each; prints the
 *		excess of each
 *	ios	writes of 8 KiB on one disk, issued when they are queued: `+ CGROUP NS` or, for the end, `- IO NS` (by its
 *		number, from 0); prints at an end the excess, its own part and whether others were ahead, after `blame` lines
 *	share	a wait shared out: own seat, its length, queued ns, now, then a count, cgroup and owner ns for each seat and
 *		the count of the others; prints what is others', then `blame` lines
 *	queue	packets in one send queue: `+ OWNER NS BYTES PACED_NS`, `- PACKET NS` (by its number, from 0) or
 *		`= BYTES` (what the queue says it holds); prints at a leave what is others' after `blame` lines
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

u64 plain_additions; /* that are not atomic */

#define SUBPROGRAM static
#define GLOBAL_SUBPROGRAM static
#define COUNT(target, amount) (plain_additions++, (target) += (amount))

#include "log2.h"
#ifdef DISK
#include "io_times.h"
#elif defined(SEND_QUEUE)
#include "send_queue.h"
#else
#include "disk_seats.h"
#include "run_slices.h"
#endif

static void print_blame(u64 victim, u64 culprit, u64 ns)
{
	printf("blame %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", victim, culprit, ns);
}

#ifdef DISK
static int add_blame(u64 victim, u64 culprit, u64 ns)
{
	print_blame(victim, culprit, ns);
	return 0;
}
#elif defined(SEND_QUEUE)
static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns)
{
	print_blame(victim, culprit, ns);
}
#else
static __always_inline void add_blame(u64 victim, u64 culprit, u64 ns, bool preemptible)
{
	plain_additions += !preemptible;
	print_blame(victim, culprit, ns);
}
#endif

static u64 number(void)
{
	u64 value = 0;

	if (scanf("%" SCNu64, &value) != 1)
		value = 0;
	return value;
}

static void slots(void)
{
	u64 value;

	while (scanf("%" SCNu64, &value) == 1)
		printf("%" PRIu32 "\n", log2_slot(value));
}

#ifdef DISK
static void seats(void)
{
	struct disk disk = {};
	u64 value, second, more;
	char sign;

	while (scanf(" %c %" SCNu64 " %" SCNu64 " %" SCNu64, &sign, &value, &second, &more) == 4) {
		if (sign == '+')
			value = take_seat(&disk, value, more, second * 1000000000);
		else
			leave_seat(&disk, value, more * 1000000000, second * 1000000000);
		printf("%" PRIu64, value);
		for (int i = 0; i <= OTHERS; i++)
			printf(" %" PRIu32, outstanding(&disk, i, second));
		printf("\n");
	}
}

static struct usual_times classes[QUEUE_CLASSES + 3];

static __always_inline struct usual_times *usual_times_of(u32 disk, u32 class)
{
	return &classes[class];
}

static void ios(void)
{
	static struct io known[65536];
	struct disk disk = {};
	u64 count = 0, place, now;
	char sign;

	while (scanf(" %c %" SCNu64 " %" SCNu64, &sign, &place, &now) == 3) {
		if (sign == '+') {
			struct queued what = {.sector = count << 20, .bytes = 8192, .operation = OP_WRITE_BIT};
			struct io *io = &known[count++ & 65535];

			*io = (struct io){.cgroup = place, .queued_ns = now, .issued_ns = now};
			queue_io(io, &disk, &what, now);
		} else {
			struct blockio_stats stats = {};
			struct io *io = &known[place & 65535];

			account_io(&stats, &disk, io, OP_WRITE_BIT, 8192, now);
			leave_seat(&disk, io->seat, io->queued_ns, now);
			printf("excess %" PRIu64 " %" PRIu64 " %d\n", stats.excess_ns, stats.self_ns, !!io->depth);
		}
	}
}

static void excesses(void)
{
	struct usual_times usual = {};
	u64 ahead, ns, second, presumed_ns;

	if (scanf("%" SCNu64, &presumed_ns) != 1)
		return;
	while (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &ahead, &ns, &second) == 3)
		printf("%" PRIu64 "\n", excess(&usual, depth_of(ahead), ns, second, presumed_ns));
}

static void share(void)
{
	struct disk disk = {};
	struct io io = {};
	u64 length, now;

	io.seat = number();
	length = number();
	io.queued_ns = number();
	now = number();
	io.cgroup = 1;
	for (int i = 0; i <= OTHERS; i++) {
		disk.outstanding[i] = number();
		disk.moved_s[i] = seconds(now);
		if (i < OTHERS) {
			disk.cgroups[i] = number();
			disk.owner_ns[i] = number();
		}
	}
	printf("others %" PRIu64 "\n", share_out(&disk, &io, length, now));
}
#elif defined(SEND_QUEUE)
static void queue_packets(void)
{
	struct net_queue queue = {};
	struct net_stamp stamps[1024] = {};
	u64 count = 0, ns;
	char sign;

	while (scanf(" %c", &sign) == 1) {
		if (sign == '+') {
			struct net_stamp *stamp = &stamps[count++ & 1023];

			stamp->owner = number();
			stamp->since_ns = number();
			stamp->bytes = number();
			stamp->paced_ns = number();
			enter_queue(&queue, stamp, stamp->since_ns);
		} else if (sign == '-') {
			struct net_stamp *stamp = &stamps[number() & 1023];

			ns = number();
			leave_queue(&queue, stamp);
			printf("others %" PRIu64 "\n", share_wait(&queue, stamp, ns - stamp->since_ns));
		} else {
			correct_queue(&queue, number());
		}
	}
}
#else
static void charge_from_input(bool preemptible)
{
	u64 victim = number(), begin = number(), end = number();
	struct cpu_state state = {.since_ns = number()};
	struct cpu_cgroup stats = {};
	u64 running = number(), count = number();

	for (u64 i = 0; i < count; i++) {
		state.identity = number();
		u64 slice_end = number();

		push_slice(&state, slice_end);
		state.since_ns = slice_end;
	}
	state.identity = running;
	plain_additions = 0;
	charge_wait(&stats, victim, &state, begin, end, preemptible);
	if (preemptible)
		printf("plain %" PRIu64 "\n", plain_additions);
	for (int i = 0; i < WAIT_CAUSES; i++)
		printf("cause %d %" PRIu64 "\n", i, stats.causes_ns[i]);
}

static void unseen(void)
{
	struct cpu_state state = {.since_ns = 1, .identity = 7};
	struct slice *last;
	u64 ran;
	bool known;

	push_slice(&state, number());
	state.since_ns = state.ring[1].end_ns;
	ran = number();
	known = end_unseen(&state, ran, number());
	last = &state.ring[(state.head - 1) & (RING - 1)];
	printf("%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", known, state.since_ns, state.identity, last->end_ns,
	       last->identity);
}
#endif

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "slots"))
		slots();
#ifdef DISK
	else if (count == 2 && !strcmp(arguments[1], "seats"))
		seats();
	else if (count == 2 && !strcmp(arguments[1], "excess"))
		excesses();
	else if (count == 2 && !strcmp(arguments[1], "ios"))
		ios();
	else if (count == 2 && !strcmp(arguments[1], "share"))
		share();
#elif defined(SEND_QUEUE)
	else if (count == 2 && !strcmp(arguments[1], "queue"))
		queue_packets();
#else
	else if (count == 2 && !strcmp(arguments[1], "charge"))
		charge_from_input(false);
	else if (count == 2 && !strcmp(arguments[1], "pass"))
		charge_from_input(true);
	else if (count == 2 && !strcmp(arguments[1], "unseen"))
		unseen();
#endif
	else
		return 2;
	return 0;
}
