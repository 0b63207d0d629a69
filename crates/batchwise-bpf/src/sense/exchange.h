/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The exchange: queue states to the peer and back in TCP options (docs/research/exchange.md). A client
 * offers it on its SYN, a server that speaks it answers on the SYN-ACK; the client then begins, and
 * the server answers once it has heard an option on the connection itself.
 */
#ifndef BW_EXCHANGE_H
#define BW_EXCHANGE_H

#include "members.h"
#include "nagle.h"
#include "../lib/wire.h"

#define BW_CB_FLAGS (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG)

/* An option must leave room for the SACK blocks that the segment may carry as well. */
#define BW_OPT_ROOM (BW_OPT_LEN + 36)

BW_INLINE struct bw_endpoint *bw_ops_member(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&endpoints, sk, NULL, 0) : NULL;
}

BW_INLINE bool bw_ops_port(const struct bpf_sock_ops *ops)
{
	return bw_side(ops->local_port, bpf_ntohl(ops->remote_port)) >= 0;
}

/* Whether the header at hand (`where`: the SYN that is being answered) carries our option. */
BW_INLINE bool bw_ops_hello(struct bpf_sock_ops *ops, __u64 where)
{
	__u8 opt[BW_OPT_LEN] = { BW_OPT_KIND, BW_OPT_HELLO_LEN, BW_OPT_EXID >> 8,
				 BW_OPT_EXID & 0xff };

	return bpf_load_hdr_opt(ops, opt, sizeof(opt), where) == BW_OPT_HELLO_LEN;
}

/* A window is announced so often until the peer says that it counts, too; and then, as it goes on. */
#define BW_ANNOUNCE_PERIOD 20000000ULL /* ns */
#define BW_GOES_ON_PERIOD 200000000ULL

/*
 * What is sent in turn: the agent's state, and, while the peer counts, the queues of the units asked for
 * (turnaround is the server's to advertise), or, where the client's application itself says when its
 * requests begin and end, that alone, and from the server nothing (§3.3).
 */
BW_INLINE bool bw_ops_sends(const struct bw_endpoint *e, __u32 slot, const struct bw_queue *hint)
{
	if (slot == BW_SLOT_HINT)
		return hint && hint->time != e->hint_advertised;
	return !hint && !(e->rec.flags & BW_F_HINTED) && BW_WANT(advertised_units, slot / BW_QUEUES) &&
	       (slot % BW_QUEUES != BW_TURNAROUND || e->rec.flags & BW_F_SERVER);
}

/* What is sent next; BW_SLOTS: nothing. */
BW_INLINE __u32 bw_ops_next(const struct bw_endpoint *e, const struct bw_queue *hint, __u64 now)
{
	bool heard = e->rec.peer_open_until > now;
	__u64 period = heard ? BW_GOES_ON_PERIOD : BW_ANNOUNCE_PERIOD;
	__u32 n = e->next_option;

	if (now - e->state_sent > period)
		return BW_SLOT_STATE;
	if (!heard)
		return BW_SLOTS;
	for (int i = 0; i < BW_SLOTS; i++) {
		n = n + 1 < BW_SLOTS ? n + 1 : 0;
		if (n != BW_SLOT_STATE && bw_ops_sends(e, n, hint))
			return n;
	}
	return BW_SLOTS;
}

/*
 * A pure ACK leaves, and here its time is known exactly. It matters: a segment that is answered at
 * once wakes the application first, which may take longer than all the rest of its way.
 */
BW_INLINE void bw_ops_pure_ack(struct bw_endpoint *e, const struct tcp_sock *tp)
{
	if (e->rec.epoch != epoch)
		return; /* its counters are not in use */
	bw_version_bump(e);
	bw_drain_log_apart(e);
	bw_on_ack_left(e, units, bpf_ktime_get_ns(), tp->rcv_nxt);
	bw_version_bump(e);
}

BW_INLINE void bw_ops_reserve(struct bpf_sock_ops *ops)
{
	struct bw_endpoint *e;
	__u32 flags = ops->skb_tcp_flags;
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;
	__u64 now;

	/* a constant answer, or the MSS would change from call to call */
	if (ops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS)
		return;
	if (flags & TCPHDR_SYN) {
		/* the callbacks may have been switched on for another program */
		if (ops->args[0] == BPF_WRITE_HDR_TCP_SYNACK_COOKIE || !bw_ops_port(ops))
			return;
		if (flags == TCPHDR_SYN || bw_ops_hello(ops, BPF_LOAD_HDR_OPT_TCP_SYN))
			bpf_reserve_hdr_opt(ops, BW_OPT_HELLO_LEN, 0);
		return;
	}
	if (flags & (TCPHDR_FIN | TCPHDR_RST) || !sk)
		return;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	if (!e || !(e->rec.flags & BW_F_AGREED))
		return;
	if (paused && !late_callbacks)
		return;
	if (paused) {
		/* even a callback that does nothing costs: not again until bw_apply or bw_speak */
		bw_ops_flags(ops, 0, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		e->silent = 1;
		return;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	bw_runs()->member++;
	if (!ops->skb_len)
		bw_ops_pure_ack(e, tp);
	if (ops->skb_len + BW_OPT_ROOM > tp->mss_cache)
		return;
	/* the time of this very segment, without reading a clock */
	now = tp->tcp_wstamp_ns;
	if ((__s64)(now - e->option_sent) < (__s64)exchange_period_ns)
		return;
	/* room that is not used is sent as padding */
	if (bw_ops_next(e, bw_hint(e), now) < BW_SLOTS)
		bpf_reserve_hdr_opt(ops, BW_OPT_LEN, 0);
}

BW_INLINE void bw_ops_encode_queue(struct bw_endpoint *e, __u8 *opt, __u32 unit, __u32 queue,
				   __u64 now)
{
	struct bw_queue *q;

	/* one register for a bound and its index */
	barrier_var(unit);
	barrier_var(queue);
	if (unit >= BW_UNITS || queue >= BW_QUEUES)
		return;
	q = &e->rec.q[unit][queue];
	bw_version_bump(e);
	bw_drain_log_apart(e);
	/* the ACK that this segment carries is settled at the next event, at its own time */
	if (queue != BW_ACKDELAY)
		bw_touch(q, now);
	bw_version_bump(e);
	bw_wire_encode(opt, unit, queue, q);
}

BW_INLINE void bw_ops_write(struct bpf_sock_ops *ops)
{
	__u8 opt[BW_OPT_LEN] = {}; /* an older verifier wants all of it set */
	struct bw_endpoint *e;
	struct bw_queue *hint;
	__u32 n;
	__u64 now;

	if (ops->skb_tcp_flags & TCPHDR_SYN) {
		if (!bw_ops_port(ops))
			return;
		bw_wire_header(opt, BW_OPT_HELLO_LEN);
		bpf_store_hdr_opt(ops, opt, BW_OPT_HELLO_LEN, 0);
		return;
	}
	e = bw_ops_member(ops);
	if (!e)
		return;
	bw_runs()->member++;
	hint = bw_hint(e);
	now = bpf_ktime_get_ns();
	n = bw_ops_next(e, hint, now);
	if (n >= BW_SLOTS)
		return;
	if (n == BW_SLOT_STATE) {
		bw_wire_encode_state(opt, now, open_until > now ? open_until - now : 0);
		e->state_sent = now;
	} else if (n == BW_SLOT_HINT) {
		if (!hint)
			return;
		e->hint_advertised = hint->time;
		bw_wire_encode(opt, BW_WIRE_AGENT, BW_WIRE_HINT, hint);
	} else {
		bw_ops_encode_queue(e, opt, n / BW_QUEUES, n % BW_QUEUES, now);
	}
	if (bpf_store_hdr_opt(ops, opt, BW_OPT_LEN, 0))
		return;
	e->next_option = n;
	e->option_sent = now;
	e->rec.options_sent++;
}

/*
 * A request may be older than our counting, and so may the client's: what is heard first is where we
 * begin. 0, or -1 for what is not new, or from a server, which has no requests of its own.
 */
BW_INLINE int bw_ops_hear_hint(struct bw_endpoint *e, const struct bw_wire *w)
{
	struct bw_peer_queue *p = &e->rec.peer_hint;

	if (!(e->rec.flags & BW_F_SERVER))
		return -1;
	e->rec.flags |= BW_F_HINTED;
	if (!p->heard) {
		p->raw_total = w->total;
		p->raw_integral = w->integral;
	}
	return bw_wire_add(p, w);
}

/* The peer counts, and for how long. The agent follows, if it has the means. */
BW_INLINE void bw_ops_hear_window(struct bw_endpoint *e, const struct bw_wire *w, __u64 now)
{
	__u64 open = (__u64)w->integral << BW_WIRE_TIME_SHIFT, until;

	until = now + (open < BW_OPEN_MOST ? open : BW_OPEN_MOST);
	e->rec.peer_open_until = until;
	if (!paused || !open || now - rung_at < BW_RING_PERIOD)
		return;
	rung_at = now;
	bpf_ringbuf_output(&doorbell, &until, sizeof(until), 0);
}

/* 0, or -1 for what is unknown or not new. */
BW_INLINE int bw_ops_hear(struct bw_endpoint *e, const struct bw_wire *w)
{
	if (w->unit < BW_UNITS && w->queue < BW_QUEUES) {
		e->rec.flags &= ~BW_F_HINTED;
		return bw_wire_add(&e->rec.peer[w->unit][w->queue], w);
	}
	if (w->unit != BW_WIRE_AGENT)
		return -1;
	if (w->queue == BW_WIRE_HINT)
		return bw_ops_hear_hint(e, w);
	if (w->queue != BW_WIRE_STATE)
		return -1;
	bw_ops_hear_window(e, w, bpf_ktime_get_ns());
	return 0;
}

/* The peer has begun to advertise: answer. Where we begin, the walk reaches the sockets. */
BW_INLINE void bw_speak(struct bpf_sock_ops *ops, struct bw_endpoint *e)
{
	if (!e->silent || paused)
		return;
	e->silent = 0;
	bw_ops_flags(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG, 0);
}

BW_INLINE void bw_ops_parse(struct bpf_sock_ops *ops)
{
	__u8 opt[BW_OPT_LEN] = { BW_OPT_KIND, BW_OPT_HELLO_LEN, BW_OPT_EXID >> 8,
				 BW_OPT_EXID & 0xff };
	struct bw_endpoint *e = bw_ops_member(ops);
	struct bw_wire w;
	long len;

	if (!e)
		return;
	bw_runs()->member++;
	len = bpf_load_hdr_opt(ops, opt, sizeof(opt), 0);
	if (len < 0)
		return;
	bw_version_bump(e);
	if (len != BW_OPT_LEN || bw_wire_decode(opt, &w) || bw_ops_hear(e, &w)) {
		e->rec.options_refused++;
	} else {
		e->rec.options_heard++;
		if (!(e->rec.flags & BW_F_AGREED)) {
			e->rec.flags |= BW_F_AGREED;
			bw_ops_flags(ops, BW_CB_FLAGS, 0);
		}
	}
	bw_version_bump(e);
	bw_speak(ops, e);
}

SEC("?sockops")
int bw_exchange(struct bpf_sock_ops *ops)
{
	struct bw_endpoint *e;
	bool agreed;

	switch (ops->op) {
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		bw_ops_reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		bw_ops_write(ops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		bw_ops_parse(ops);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (bw_ops_port(ops))
			bw_ops_flags(ops, BW_CB_FLAGS, 0);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (!bw_ops_port(ops))
			break; /* its flags are another program's */
		e = bw_ops_member(ops);
		agreed = e && bw_ops_hello(ops, 0);
		if (agreed)
			e->rec.flags |= BW_F_AGREED;
		bw_ops_flags(ops, agreed ? BW_CB_FLAGS : 0, agreed ? 0 : BW_CB_FLAGS);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		/* Both flags came from the listener. Write only once the client was heard. */
		if (bw_ops_port(ops))
			bw_ops_flags(ops, BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG,
				     BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	}
	return 1;
}

BW_INLINE void bw_listen_for_options(struct tcp_sock *tp)
{
	int flags = 0;

	bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG;
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
}

/* Listeners that were open before the agent: their SYN-ACKs are to answer, too. */
SEC("?iter/tcp")
int bw_adopt_listener(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;
	int flags = 0;

	if (!skc || skc->skc_state != TCP_LISTEN || bw_side(skc->skc_num, 0) < 0)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || !bw_cgroup_matches((struct sock *)tp))
		return 0;
	bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= BW_CB_FLAGS;
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	return 0;
}

#endif
