// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A service's own latency: the time from a request's arrival on a server-side TCP socket to the first send on it.
 *
 * A socket is a server's when it was accepted (SYN_RECV to ESTABLISHED), or, if it is older than the probe, when its
 * local port is one its network namespace listens on. Only servers' sockets carry the storage, so clients leave early.
 */
#include "maps.bpf.h"
#include "log2.h"
#include "socket.bpf.h"

enum lost_place { LOST_SOCKET, LOST_PORT, LOST_LISTENER, LOST_PLACES };

struct turn {
	u64 arrival_ns; /* of the oldest request that has no answer; 0 when none waits */
	u64 next_ns;	/* of a request that came while that one's answer was being sent */
	u64 write_seq;	/* end of what the service had written at the newest of the two */
};

struct turnaround_port {
	u64 cgroup;
	u64 port;
};

struct turnaround_stats {
	u64 requests;
	u64 sum_ns;
	u64 hist[SLOTS];
};

struct turnaround_listener {
	u64 net;
	u64 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct turn);
} turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct turnaround_port);
	__type(value, struct turnaround_stats);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct turnaround_listener);
	__type(value, u64);
} listeners SEC(".maps");

LOST_MAP(LOST_PLACES);

static const struct turnaround_stats zero_stats;
static const u64 one = 1;

static __always_inline u64 written(const struct sock *sk)
{
	return BPF_CORE_READ((const struct tcp_sock *)sk, write_seq);
}

static __always_inline void follow(const struct sock *sk)
{
	if (!bpf_sk_storage_get(&turns, (void *)sk, NULL, BPF_SK_STORAGE_GET_F_CREATE))
		count_lost(LOST_SOCKET, 1);
}

/* An answer counts as begun once the service has written anything since the request came: the send's own tracepoint
 * comes at its end, when a fast client's next request can already be here. */
static __always_inline void arrive(struct turn *turn, const struct sock *sk)
{
	u64 sequence;

	if (turn->next_ns)
		return;
	sequence = written(sk);
	if (!turn->arrival_ns)
		turn->arrival_ns = bpf_ktime_get_ns();
	else if (sequence != turn->write_seq)
		turn->next_ns = bpf_ktime_get_ns();
	else
		return;
	turn->write_seq = sequence;
}

static __always_inline void answer(struct turn *turn, const struct sock *sk)
{
	struct turnaround_port key = {};
	struct turnaround_stats *stats;
	u64 elapsed;

	if (!turn->arrival_ns)
		return;
	elapsed = bpf_ktime_get_ns() - turn->arrival_ns;
	turn->arrival_ns = turn->next_ns;
	turn->next_ns = 0;
	key.cgroup = task_cgroup(bpf_get_current_task_btf());
	key.port = sk->__sk_common.skc_num;
	stats = lookup_or_init(&ports, &key, &zero_stats);
	if (!stats) {
		count_lost(LOST_PORT, 1);
		return;
	}
	COUNT(stats->requests, 1);
	COUNT(stats->sum_ns, elapsed);
	COUNT(stats->hist[log2_slot(elapsed)], 1);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *sk, const int old_state, const int new_state)
{
	if (old_state == TCP_SYN_RECV && new_state == TCP_ESTABLISHED)
		follow(sk);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_ready, const struct sock *sk)
{
	struct turn *turn = bpf_sk_storage_get(&turns, (void *)sk, NULL, 0);

	if (turn)
		arrive(turn, sk);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int length)
{
	struct turn *turn;

	if (length <= 0)
		return 0;
	turn = bpf_sk_storage_get(&turns, sk, NULL, 0);
	if (turn)
		answer(turn, sk);
	return 0;
}

static __always_inline struct turnaround_listener place_of(const struct sock *sk)
{
	struct turnaround_listener place = {
		.net = (u64)sk->__sk_common.skc_net.net,
		.port = sk->__sk_common.skc_num,
	};

	return place;
}

SEC("iter/task_file")
int find_listeners(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = inet_socket(ctx->file);
	struct turnaround_listener place;

	if (!sk || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	place = place_of(sk);
	if (bpf_map_update_elem(&listeners, &place, &one, BPF_ANY))
		count_lost(LOST_LISTENER, 1);
	return 0;
}

SEC("iter/task_file")
int find_servers(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = inet_socket(ctx->file);
	struct turnaround_listener place;

	if (!sk || sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return 0;
	place = place_of(sk);
	if (bpf_map_lookup_elem(&listeners, &place))
		follow(sk);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
