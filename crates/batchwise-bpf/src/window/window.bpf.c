// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Window space: wakes an application when TCP can send on a socket again. Only sockets that were
 * registered have these callbacks; each costs something when a segment arrives, and nothing otherwise.
 */
#include "../lib/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../lib/space.h"
#include "window_intf.h"

#define WINDOW_CALLBACKS                                                                              \
	(BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG |                      \
	 BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG)
#define WINDOW_TCP_HEADER 20
#define WINDOW_OFF_ACK 8
#define WINDOW_OFF_WINDOW 14

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Registered sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct window_registration);
} sockets SEC(".maps");

/* By application: its slots, which it has mapped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, WINDOW_APPS);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
		__type(key, __u32);
		__type(value, struct window_slot);
	});
} slots SEC(".maps");

/* Of the applications that have these numbers now; 0: nobody. */
volatile __u32 generations[WINDOW_APPS];

/* The agent's process, as its PID namespace knows it: nobody else registers sockets. */
volatile __u32 agent;
volatile __u64 namespace_dev;
volatile __u64 namespace_inode;

/* Ports of applications that do not ask themselves; 0: none. */
volatile __u32 gates[WINDOW_GATES];
/* Connections that have got their low water since the start. */
__u64 gated;

/* The numbers of all maps: an application's memory stays for as long as it keeps the descriptor. */
SEC("iter/bpf_map")
int window_memories(struct bpf_iter__bpf_map *ctx)
{
	struct bpf_map *map = ctx->map;
	__u32 id;

	if (!map)
		return 0;
	id = map->id;
	bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
	return 0;
}

/* Where the application waits of this registration. NULL: it is gone, or has let go of the socket. */
BW_INLINE struct window_slot *window_slot_of(const struct window_registration *reg)
{
	__u32 app = reg->app, index = reg->slot;
	struct window_slot *slot;
	void *of_app;

	if (app >= WINDOW_APPS || generations[app] != reg->generation)
		return NULL;
	of_app = bpf_map_lookup_elem(&slots, &app);
	if (!of_app)
		return NULL;
	slot = bpf_map_lookup_elem(of_app, &index);
	return slot && slot->turn == reg->turn ? slot : NULL;
}

/* The socket has no callbacks of ours any more, and costs nothing. */
BW_INLINE void window_unregister(struct bpf_sock_ops *ops, struct bpf_sock *sk,
				 const struct window_registration *reg)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~reg->flags);
	bpf_sk_storage_delete(&sockets, sk);
}

BW_INLINE void window_sender(const struct tcp_sock *tp, struct window_sender *s)
{
	const struct sock *sk = (const struct sock *)tp;
	int buffer = sk->sk_sndbuf - sk->sk_wmem_queued;

	s->cwnd = tp->snd_cwnd;
	s->mss = tp->mss_cache;
	s->unacked = tp->packets_out;
	s->sacked = tp->sacked_out;
	s->lost = tp->lost_out;
	s->retrans = tp->retrans_out;
	s->flight = tp->snd_nxt - tp->snd_una;
	s->peer = tp->snd_wnd;
	s->unsent = tp->write_seq - tp->snd_nxt;
	s->buffer = buffer > 0 ? buffer : 0;
	/* the counter begins at 1 */
	s->device = window_device_room(sk->sk_pacing_rate, s->mss,
				       sk->sk_wmem_alloc.refs.counter - 1);
}

/*
 * A segment that is not looked at yet may move the peer's window: no callback comes behind that. What the
 * kernel does with it (tcp_ack_update_window) is anticipated.
 */
BW_INLINE void window_anticipate(struct bpf_sock_ops *ops, const struct tcp_sock *tp,
				 struct window_sender *s)
{
	__u8 *th = ops->skb_data;
	__u32 ack, peer;

	if (th + WINDOW_TCP_HEADER > (__u8 *)ops->skb_data_end)
		return;
	ack = bpf_ntohl(*(__u32 *)(th + WINDOW_OFF_ACK));
	peer = bpf_ntohs(*(__u16 *)(th + WINDOW_OFF_WINDOW));
	peer <<= BPF_CORE_READ_BITFIELD_PROBED(&tp->rx_opt, snd_wscale);
	/* how far it reaches, counted from what is acknowledged so far */
	if ((__s32)(ack + peer - tp->snd_una - s->peer) > 0)
		s->peer = ack + peer - tp->snd_una;
}

/*
 * Whether who polls the socket would be told that it is writable: less than a third of the buffer free, or
 * too much unsent, and nobody is (sk_stream_write_space(), tcp_stream_memory_free()).
 */
BW_INLINE bool window_would_wake(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u32 low_water = tp->notsent_lowat, unsent = tp->write_seq - tp->snd_nxt;

	if (!low_water)
		low_water = sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_notsent_lowat;
	return sk->sk_sndbuf - sk->sk_wmem_queued >= sk->sk_wmem_queued >> 1 &&
	       unsent << 1 < low_water;
}

/*
 * Wakes the application if it waits: to set TCP_NOTSENT_LOWAT, here to what it is, tells whoever polls the
 * socket that it is writable (tcp_set_notsent_lowat()).
 */
BW_INLINE void window_wake(struct bpf_sock_ops *ops, const struct tcp_sock *tp, struct window_slot *slot)
{
	__u32 low_water = tp->notsent_lowat;

	if (!window_would_wake(tp) || __sync_val_compare_and_swap(&slot->armed, 1, 0) != 1)
		return;
	slot->rung_at = bpf_ktime_get_ns();
	slot->rung++;
	bpf_setsockopt(ops, SOL_TCP, TCP_NOTSENT_LOWAT, &low_water, sizeof(low_water));
}

/* What the slot says is as of now. An exchange orders what was written before it, on any CPU. */
BW_INLINE void window_publish(struct window_slot *slot)
{
	__sync_lock_test_and_set(&slot->events, slot->events + 1);
}

/*
 * The kernel says that the connection is writable when nothing waits in it, and no earlier. This is all that
 * can be done from outside: how much is written then is the application's to say.
 */
BW_INLINE void window_gate(struct bpf_sock_ops *ops)
{
	__u32 local = ops->local_port, remote = bpf_ntohl(ops->remote_port), low_water = 1;
	int i;

	for (i = 0; i < WINDOW_GATES; i++) {
		if (!gates[i] || (gates[i] != local && gates[i] != remote))
			continue;
		if (!bpf_setsockopt(ops, SOL_TCP, TCP_NOTSENT_LOWAT, &low_water, sizeof(low_water)))
			__sync_fetch_and_add(&gated, 1);
		return;
	}
}

SEC("sockops")
int window_acked(struct bpf_sock_ops *ops)
{
	struct window_sender sender;
	struct window_slot *slot;
	struct window_registration *reg;
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ||
	    ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
		window_gate(ops);
		return 1;
	}
	if (ops->op != BPF_SOCK_OPS_RTT_CB && ops->op != BPF_SOCK_OPS_PARSE_HDR_OPT_CB &&
	    ops->op != BPF_SOCK_OPS_STATE_CB && ops->op != BPF_SOCK_OPS_RTO_CB)
		return 1;
	sk = ops->sk;
	if (!sk)
		return 1;
	reg = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!reg)
		return 1;
	slot = window_slot_of(reg);
	if (!slot) {
		window_unregister(ops, sk, reg);
		return 1;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	if (ops->op == BPF_SOCK_OPS_STATE_CB) {
		if (ops->args[1] == TCP_CLOSE)
			slot->unsent = 0;
		/* whoever waits tries, and finds what the matter is */
		if (ops->args[1] != BPF_TCP_ESTABLISHED &&
		    ops->args[1] != BPF_TCP_CLOSE_WAIT)
			slot->space = slot->allowed = ~0U;
		window_publish(slot);
		window_wake(ops, tp, slot);
		return 1;
	}
	window_sender(tp, &sender);
	if (ops->op == BPF_SOCK_OPS_PARSE_HDR_OPT_CB)
		window_anticipate(ops, tp, &sender);
	slot->space = window_space(&sender, 0);
	slot->allowed = window_allowed(&sender);
	slot->unsent = sender.unsent;
	slot->rtt_us = tp->srtt_us >> 3;
	window_publish(slot);
	if (slot->space && slot->allowed >= slot->at_least)
		window_wake(ops, tp, slot);
	return 1;
}

/* The agent registers a socket by setting an option that there is not. */
SEC("cgroup/setsockopt")
int window_register(struct bpf_sockopt *ctx)
{
	struct window_registration *asked = ctx->optval, *reg;
	struct bpf_pidns_info who = {};
	__u32 ours;
	int flags = 0;

	if (ctx->level != WINDOW_LEVEL)
		return 1;
	if (bpf_get_ns_current_pid_tgid(namespace_dev, namespace_inode, &who, sizeof(who)) ||
	    who.tgid != agent)
		return 1;
	if ((void *)(asked + 1) > ctx->optval_end || !ctx->sk)
		return 0;
	reg = bpf_sk_storage_get(&sockets, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!reg)
		return 0;
	if (bpf_getsockopt(ctx->sk, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		return 0;
	ours = reg->flags | (WINDOW_CALLBACKS & ~flags);
	*reg = *asked;
	reg->flags = ours;
	flags |= WINDOW_CALLBACKS;
	if (bpf_setsockopt(ctx->sk, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		return 0;
	ctx->optlen = -1; /* the kernel is not asked */
	return 1;
}

/* No map has these by type: they tell the loader's generator of them. */
enum window_bound *of_bound;
struct window_slot *of_slot;
struct window_registration *of_registration;
