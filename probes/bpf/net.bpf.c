// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Network losses and delays of each cgroup's sockets: TCP retransmits, drops, the wait in send queues, and the receive
 * interrupt's time.
 *
 * A send's wait runs from its entry to a device with a queue to its first leave of the queue, and is shared out among
 * the cgroups whose bytes were ahead. Of a receive interrupt, the time from one packet's entry into the stack to the next
 * one's belongs to the socket that the packet reached; and it is the interrupted cgroup's own doing where that socket, or
 * the one that sent the packet, is its own.
 */
#include "net.bpf.h"
#include "net_path.bpf.h"

#define NET_RX_SOFTIRQ 3
#define TCQ_F_CPUSTATS 0x20
#define TCQ_F_NOLOCK 0x100
#define LONGEST_PACE_NS 60000000000ULL /* what is later is a time of another clock */
#define BULK 64 /* packets followed in one bulk dequeue */

static __always_inline int retransmitted(const struct sock *sk)
{
	u64 owner = owner_of((void *)sk);
	struct net_cgroup *stats;

	if (owner == NO_OWNER) {
		count_lost(UNKEYED_PACKETS, 1);
		return 0;
	}
	stats = stats_of(owner);
	if (stats)
		COUNT(stats->retransmits, 1);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, const struct sock *sk)
{
	return retransmitted(sk);
}

/* since 6.17 failures are traced too */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit_result, const struct sock *sk, const struct sk_buff *skb, int error)
{
	return error ? 0 : retransmitted(sk);
}

/* A packet left its queue without having waited to the end. */
static __always_inline void forget_stamp(u64 key)
{
	struct net_stamp *stamp = bpf_map_lookup_elem(&stamps, &key);
	struct net_queue *queue;
	u64 address;

	if (!stamp)
		return;
	address = stamp->queue;
	queue = bpf_map_lookup_elem(&queues, &address);
	if (queue)
		leave_queue(queue, stamp);
	bpf_map_delete_elem(&stamps, &key);
}

/* Packets that a socket still held when it was closed are not a loss of the network. */
static __always_inline bool is_drop(u32 reason)
{
	if (bpf_core_enum_value_exists(enum skb_drop_reason, SKB_CONSUMED) &&
	    reason == bpf_core_enum_value(enum skb_drop_reason, SKB_CONSUMED))
		return false;
	return !bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_QUEUE_PURGE) ||
	       reason != bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_QUEUE_PURGE);
}

static __always_inline void add_drop(u64 owner, u32 reason)
{
	struct net_drop key = {.cgroup = owner, .reason = reason};
	struct net_cgroup *stats = stats_of(owner);
	u64 *count = lookup_or_init(&drops, &key, &zero);

	if (stats)
		COUNT(stats->drops, 1);
	if (count)
		COUNT(*count, 1);
	else
		count_lost(LOST_REASON, 1);
}

/* Cgroup of a dropped packet without a socket: its sender, else the user of the pair's end where it arrived. */
static __always_inline u64 owner_of_dropped(struct sk_buff *skb)
{
	struct net_cpu *cpu = this_cpu();
	struct net_interface interface;
	struct net_end *end;
	u64 owner;

	if (!cpu)
		return NO_OWNER;
	owner = routed_sender(cpu, skb);
	if (owner != NO_OWNER || cpu->arrived_skb != (u64)skb)
		return owner;
	interface = cpu->arrived;
	end = bpf_map_lookup_elem(&ends, &interface);
	return end ? end->user : NO_OWNER;
}

static __always_inline int dropped(struct sk_buff *skb, struct sock *sk, u32 reason)
{
	u64 key = (u64)skb, owner;

	forget_stamp(key);
	if (!is_drop(reason))
		return 0;
	owner = sk ? owner_of(sk) : owner_of_dropped(skb);
	if (owner == NO_OWNER)
		count_lost(UNKEYED_DROPS, 1);
	else
		add_drop(owner, reason);
	return 0;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(on_drop, struct sk_buff *skb, void *location, u32 reason)
{
	return dropped(skb, skb->sk, reason);
}

/* Since 6.10 the receiving socket comes along. It may be NULL where the verifier takes it for valid, so it is
 * compared as an integer. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(on_drop_received, struct sk_buff *skb, void *location, u32 reason, struct sock *receiver)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), &ctx[3]);
	return word ? dropped(skb, receiver, reason) : dropped(skb, skb->sk, reason);
}

static __always_inline bool has_queue(struct sk_buff *skb)
{
	return skb->dev->_tx->qdisc->enqueue;
}

/* How long a packet is to be held back because its sender said so (fq, etf). */
static __always_inline u64 pace_of(struct sk_buff *skb, u64 now)
{
	u64 departs_ns = skb->skb_mstamp_ns;

	return departs_ns > now && departs_ns - now < LONGEST_PACE_NS ? departs_ns - now : 0;
}

/* In a system call the sender is the socket's user; in a soft interrupt current is the interrupted task. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_send, struct sk_buff *skb)
{
	struct net_cpu *cpu = this_cpu();
	struct sock *sk = skb->sk;
	bool queued = has_queue(skb);

	if (!cpu)
		return 0;
	cpu->send_skb = 0;
	if (sk) {
		if (!cpu->softirq && is_inet(sk) && is_full(sk))
			own(sk, bpf_get_current_task_btf());
		cpu->send_owner = owner_of(sk);
		if (cpu->send_owner != NO_OWNER)
			teach_user(cpu, skb->dev, cpu->send_owner);
	} else if (queued) {
		cpu->send_owner = routed_sender(cpu, skb);
	} else if (cpu->arrived_skb == (u64)skb) {
		cpu->send_owner = cpu->sender;
	} else {
		return 0;
	}
	cpu->send_skb = (u64)skb;
	if (!queued)
		return 0;
	cpu->send_ns = bpf_ktime_get_ns();
	cpu->send_paced_ns = sk ? pace_of(skb, cpu->send_ns) : 0;
	cpu->send_bytes = skb->len;
	return 0;
}

static __always_inline void start_wait(struct Qdisc *qdisc, u64 key, struct net_stamp *stamp)
{
	bool locked = !(qdisc->flags & TCQ_F_NOLOCK);
	struct net_queue *queue;

	stamp->queue = (u64)qdisc;
	queue = lookup_or_init(&queues, &stamp->queue, &zero_queue);
	if (!queue)
		return;
	if (!locked)
		forget_stamp(key); /* of the last packet at this address, whose leave was missed */
	else if (!(qdisc->flags & TCQ_F_CPUSTATS))
		correct_queue(queue, qdisc->qstats.backlog > stamp->bytes ? qdisc->qstats.backlog - stamp->bytes : 0);
	enter_queue(queue, stamp, stamp->since_ns);
	if (bpf_map_update_elem(&stamps, &key, stamp, BPF_ANY)) {
		leave_queue(queue, stamp);
		count_lost(LOST_STAMP, 1);
	}
}

/* With a lockless queue another CPU may already have sent and freed the packet, so it is not looked into; with a locked
 * one it is valid, and may be another CPU's (6.19 and later queue for each other). */
SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(on_enqueue, struct Qdisc *qdisc, void *queue, struct sk_buff *skb)
{
	struct net_cpu *cpu = this_cpu();
	struct net_stamp stamp = {};
	u64 key = (u64)skb;

	if (!cpu)
		return 0;
	if (cpu->send_skb == key) {
		cpu->send_skb = 0;
		stamp.since_ns = cpu->send_ns;
		stamp.owner = cpu->send_owner;
		stamp.paced_ns = cpu->send_paced_ns;
		stamp.bytes = cpu->send_bytes;
		barrier(); /* keeps the compiler from sharing loads between pointers of different kinds */
	} else if (!(qdisc->flags & TCQ_F_NOLOCK)) {
		stamp.since_ns = bpf_ktime_get_ns();
		stamp.bytes = skb->len;
		if (skb->sk) {
			stamp.owner = owner_of(skb->sk);
			stamp.paced_ns = pace_of(skb, stamp.since_ns);
		}
	} else {
		return 0;
	}
	if (stamp.owner == NO_OWNER)
		count_lost(UNKEYED_PACKETS, 1);
	start_wait(qdisc, key, &stamp);
	return 0;
}

static __always_inline void sent(u64 key, u64 now)
{
	struct net_stamp *stamp = bpf_map_lookup_elem(&stamps, &key);
	struct net_cgroup *stats;
	struct net_queue *queue;
	u64 delay, others_ns = 0, address;

	if (!stamp)
		return;
	delay = now - stamp->since_ns;
	address = stamp->queue;
	queue = bpf_map_lookup_elem(&queues, &address);
	if (queue) {
		leave_queue(queue, stamp);
		if (stamp->owner != NO_OWNER)
			others_ns = share_wait(queue, stamp, delay);
	}
	stats = stamp->owner == NO_OWNER ? NULL : stats_of(stamp->owner);
	bpf_map_delete_elem(&stamps, &key);
	if (!stats)
		return;
	COUNT(stats->qdisc_ns, delay);
	COUNT(stats->qdisc_self_ns, delay - others_ns);
	COUNT(stats->qdisc_packets, 1);
	COUNT(stats->qdisc_hist[log2_slot(delay)], 1);
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(on_dequeue, struct Qdisc *qdisc, void *queue, int packets, struct sk_buff *skb)
{
	u64 now;

	if (packets <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	for (int i = 0; i < BULK && skb; i++) {
		sent((u64)skb, now);
		skb = skb->next;
	}
	return 0;
}

/* The queue's own event is missing for one packet in some thousands; at the latest the driver's call ends the wait. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_start_xmit, struct sk_buff *skb)
{
	if (has_queue(skb))
		sent((u64)skb, bpf_ktime_get_ns());
	return 0;
}

/* Add time of a receive interrupt on top of the cgroup's tasks, by whether it is the cgroup's own doing. */
static __always_inline void add_robbed(struct net_cpu *cpu, u64 length)
{
	struct net_cgroup *stats;
	bool own = cpu->receiver == cpu->robbed || cpu->sender == cpu->robbed;

	if (!own && (cpu->receiver != NO_OWNER || cpu->sender != NO_OWNER))
		return;
	stats = stats_of(cpu->robbed);
	if (!stats)
		return;
	if (own)
		COUNT(stats->own_rx_ns, length);
	else
		COUNT(stats->unkeyed_rx_ns, length);
}

static __always_inline void add_deferred_to(u64 owner, u64 length)
{
	struct net_cgroup *stats = owner == NO_OWNER ? NULL : stats_of(owner);

	if (stats)
		COUNT(stats->deferred_ns, length);
}

/* Add time of a receive interrupt that a kernel thread handles: those that wait for its CPU may wait for themselves. */
static __always_inline void add_deferred(struct net_cpu *cpu, u64 length)
{
	add_deferred_to(cpu->receiver, length);
	if (cpu->sender != cpu->receiver)
		add_deferred_to(cpu->sender, length);
}

/* The packet's wait in the backlog belongs to the socket that it reached, else to its sender. */
static __always_inline void add_waited(struct net_cpu *cpu)
{
	u64 owner = cpu->receiver != NO_OWNER ? cpu->receiver : cpu->sender;
	struct net_cgroup *stats;

	if (!cpu->waited_ns || owner == NO_OWNER)
		return;
	stats = stats_of(owner);
	if (!stats)
		return;
	COUNT(stats->backlog_ns, cpu->waited_ns);
	COUNT(stats->backlog_packets, 1);
	cpu->waited_ns = 0;
}

/* End the part of the receive interrupt that belongs to the present receiver. */
static __always_inline void end_segment(struct net_cpu *cpu, u64 now)
{
	u64 length = now - cpu->segment_ns;
	struct net_cgroup *stats;

	cpu->segment_ns = now;
	add_waited(cpu);
	if (!cpu->arrived_skb) {
		cpu->before_ns += length; /* what comes before the first packet is that packet's */
	} else {
		if (cpu->robbed != NO_OWNER)
			add_robbed(cpu, length + cpu->before_ns);
		else if (cpu->deferred)
			add_deferred(cpu, length + cpu->before_ns);
		cpu->before_ns = 0;
	}
	if (cpu->receiver == NO_OWNER) {
		count_lost(UNKEYED_RX_NS, length);
		return;
	}
	stats = stats_of(cpu->receiver);
	if (stats)
		COUNT(stats->rx_ns, length);
	cpu->receiver = NO_OWNER;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	struct net_cpu *cpu = this_cpu();
	struct task_struct *task;

	if (!cpu)
		return 0;
	cpu->softirq = vector + 1;
	if (vector != NET_RX_SOFTIRQ)
		return 0;
	task = bpf_get_current_task_btf();
	cpu->deferred = task->pid && serves_kernel(task);
	cpu->robbed = task->pid && !cpu->deferred ? task_cgroup(task) : NO_OWNER;
	cpu->receiver = NO_OWNER;
	cpu->sender = NO_OWNER;
	cpu->arrived_skb = 0;
	cpu->before_ns = 0;
	cpu->waited_ns = 0;
	cpu->segment_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	struct net_cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (cpu->softirq == NET_RX_SOFTIRQ + 1) {
		end_segment(cpu, bpf_ktime_get_ns());
		cpu->arrived_skb = 0;
	}
	cpu->softirq = 0;
	return 0;
}

/* A packet enters a CPU's backlog: over loopback, from a pair's other end, or given to this CPU by another. */
SEC("tp_btf/netif_rx")
int BPF_PROG(on_backlog, struct sk_buff *skb)
{
	struct net_cpu *cpu = this_cpu();
	u64 sender = NO_OWNER;

	if (!cpu)
		return 0;
	if (skb->sk)
		sender = owner_of(skb->sk);
	else if (cpu->send_skb == (u64)skb)
		sender = cpu->send_owner;
	enter_backlog((u64)skb, sender, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_packet, struct sk_buff *skb)
{
	struct net_cpu *cpu = this_cpu();
	u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	if (cpu->softirq == NET_RX_SOFTIRQ + 1)
		end_segment(cpu, now);
	arrive(cpu, skb, now);
	return 0;
}

/* A packet reached a socket; batches enter the stack together and are separated by where they arrive. */
static __always_inline int reached(struct sock *sk)
{
	struct net_cpu *cpu = this_cpu();
	u64 owner;

	if (!cpu || cpu->softirq != NET_RX_SOFTIRQ + 1)
		return 0;
	owner = owner_of(sk);
	if (owner == cpu->receiver || owner == NO_OWNER)
		return 0;
	if (cpu->receiver != NO_OWNER)
		end_segment(cpu, bpf_ktime_get_ns());
	cpu->receiver = owner;
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(on_tcp_packet, struct sock *sk)
{
	return reached(sk);
}

/* TCP's packets have been seen on their way in. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_data, const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP ? 0 : reached((void *)sk);
}

/* Listening and connecting are done by the task that wants the socket. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *sk, const int old_state, const int new_state)
{
	if (new_state == TCP_LISTEN || new_state == TCP_SYN_SENT)
		own((void *)sk, bpf_get_current_task_btf());
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_receive, struct sock *sk)
{
	struct net_cpu *cpu = this_cpu();

	if (cpu && !cpu->softirq)
		own(sk, bpf_get_current_task_btf());
	return 0;
}

SEC("iter/task_file")
int own_sockets(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = inet_socket(ctx->file);
	struct task_struct *task = ctx->task;

	if (sk && task && is_full(sk))
		own(sk, task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
