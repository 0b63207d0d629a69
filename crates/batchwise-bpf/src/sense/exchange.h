/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The exchange: queue states to the peer and back in TCP options (docs/research/exchange.md). A client
 * offers it on its SYN, a server that speaks it answers on the SYN-ACK; the client then begins, and
 * the server answers once it has heard an option on the connection itself.
 */
#ifndef SENSE_EXCHANGE_H
#define SENSE_EXCHANGE_H

#include "members.h"
#include "nagle.h"
#include "../lib/wire.h"

#define SENSE_CB_FLAGS (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG)

/* An option must leave room for the SACK blocks that the segment may carry as well. */
#define SENSE_OPT_ROOM (SENSE_OPT_LEN + 36)

BW_INLINE struct sense_endpoint *sense_ops_member(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&endpoints, sk, NULL, 0) : NULL;
}

BW_INLINE bool sense_ops_port(const struct bpf_sock_ops *ops)
{
	return sense_watches(ops->local_port, bpf_ntohl(ops->remote_port));
}

/* Whether the header at hand (`where`: the SYN that is being answered) carries our option. */
BW_INLINE bool sense_ops_hello(struct bpf_sock_ops *ops, __u64 where)
{
	__u8 opt[SENSE_OPT_LEN] = { SENSE_OPT_KIND, SENSE_OPT_HELLO_LEN, SENSE_OPT_EXID >> 8,
				 SENSE_OPT_EXID & 0xff };

	return bpf_load_hdr_opt(ops, opt, sizeof(opt), where) == SENSE_OPT_HELLO_LEN;
}

/* A window is announced so often until the peer says that it counts, too; and then, as it goes on. */
#define SENSE_ANNOUNCE_PERIOD 20000000ULL /* ns */
#define SENSE_GOES_ON_PERIOD 200000000ULL

/*
 * What is sent in turn: the agent's state, and, while the peer counts, the queues of the units asked for
 * (turnaround is the server's to advertise), or, where the client's application itself says when its
 * requests begin and end, that alone, and from the server nothing (§3.3).
 */
BW_INLINE bool sense_ops_sends(const struct sense_endpoint *e, __u32 slot, const struct sense_queue *hint)
{
	if (slot == SENSE_SLOT_HINT)
		return hint && hint->time != e->hint_advertised;
	return !hint && !(e->rec.flags & SENSE_F_HINTED) && SENSE_WANT(advertised_units, slot / SENSE_QUEUES) &&
	       (slot % SENSE_QUEUES != SENSE_TURNAROUND || e->rec.flags & SENSE_F_SERVER);
}

/* What is sent next; SENSE_SLOTS: nothing. */
BW_INLINE __u32 sense_ops_next(const struct sense_endpoint *e, const struct sense_queue *hint, __u64 now)
{
	bool heard = e->rec.peer_open_until > now;
	__u64 period = heard ? SENSE_GOES_ON_PERIOD : SENSE_ANNOUNCE_PERIOD;
	__u32 n = e->next_option;

	if (now - e->state_sent > period)
		return SENSE_SLOT_STATE;
	if (!heard)
		return SENSE_SLOTS;
	for (int i = 0; i < SENSE_SLOTS; i++) {
		n = n + 1 < SENSE_SLOTS ? n + 1 : 0;
		if (n != SENSE_SLOT_STATE && sense_ops_sends(e, n, hint))
			return n;
	}
	return SENSE_SLOTS;
}

/*
 * A pure ACK leaves, and here its time is known exactly. It matters: a segment that is answered at
 * once wakes the application first, which may take longer than all the rest of its way.
 */
BW_INLINE void sense_ops_pure_ack(struct sense_endpoint *e, const struct tcp_sock *tp)
{
	if (e->rec.epoch != epoch)
		return; /* its counters are not in use */
	sense_version_bump(e);
	sense_drain_log_apart(e);
	sense_on_ack_left(e, units, bpf_ktime_get_ns(), tp->rcv_nxt);
	sense_version_bump(e);
}

BW_INLINE void sense_ops_reserve(struct bpf_sock_ops *ops)
{
	struct sense_endpoint *e;
	__u32 flags = ops->skb_tcp_flags;
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;
	__u64 now;

	/* a constant answer, or the MSS would change from call to call */
	if (ops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS)
		return;
	if (flags & TCPHDR_SYN) {
		/* the callbacks may have been switched on for another program */
		if (ops->args[0] == BPF_WRITE_HDR_TCP_SYNACK_COOKIE || !sense_ops_port(ops))
			return;
		if (flags == TCPHDR_SYN || sense_ops_hello(ops, BPF_LOAD_HDR_OPT_TCP_SYN))
			bpf_reserve_hdr_opt(ops, SENSE_OPT_HELLO_LEN, 0);
		return;
	}
	if (flags & (TCPHDR_FIN | TCPHDR_RST) || !sk)
		return;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	if (!e || !(e->rec.flags & SENSE_F_AGREED))
		return;
	if (paused && !late_callbacks)
		return;
	if (paused) {
		/* even a callback that does nothing costs: not again until sense_apply or sense_answer */
		sense_ops_flags(ops, 0, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		e->silent = 1;
		return;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	sense_runs()->member++;
	if (!ops->skb_len)
		sense_ops_pure_ack(e, tp);
	if (ops->skb_len + SENSE_OPT_ROOM > tp->mss_cache)
		return;
	/* the time of this very segment, without reading a clock */
	now = tp->tcp_wstamp_ns;
	if ((__s64)(now - e->option_sent) < (__s64)exchange_period_ns)
		return;
	/* room that is not used is sent as padding */
	if (sense_ops_next(e, sense_hint(e), now) < SENSE_SLOTS)
		bpf_reserve_hdr_opt(ops, SENSE_OPT_LEN, 0);
}

BW_INLINE void sense_ops_encode_queue(struct sense_endpoint *e, __u8 *opt, __u32 unit, __u32 queue,
				      __u64 now)
{
	struct sense_queue *q;

	/* one register for a bound and its index */
	barrier_var(unit);
	barrier_var(queue);
	if (unit >= SENSE_UNITS || queue >= SENSE_QUEUES)
		return;
	q = &e->rec.q[unit][queue];
	sense_version_bump(e);
	sense_drain_log_apart(e);
	/* the ACK that this segment carries is settled at the next event, at its own time */
	if (queue != SENSE_ACKDELAY)
		sense_touch(q, now);
	sense_version_bump(e);
	sense_wire_encode(opt, unit, queue, q);
}

BW_INLINE void sense_ops_write(struct bpf_sock_ops *ops)
{
	__u8 opt[SENSE_OPT_LEN] = {}; /* an older verifier wants all of it set */
	struct sense_endpoint *e;
	struct sense_queue *hint;
	__u32 n;
	__u64 now;

	if (ops->skb_tcp_flags & TCPHDR_SYN) {
		if (!sense_ops_port(ops))
			return;
		sense_wire_header(opt, SENSE_OPT_HELLO_LEN);
		bpf_store_hdr_opt(ops, opt, SENSE_OPT_HELLO_LEN, 0);
		return;
	}
	e = sense_ops_member(ops);
	if (!e)
		return;
	sense_runs()->member++;
	hint = sense_hint(e);
	now = bpf_ktime_get_ns();
	n = sense_ops_next(e, hint, now);
	if (n >= SENSE_SLOTS)
		return;
	if (n == SENSE_SLOT_STATE) {
		sense_wire_encode_state(opt, now, open_until > now ? open_until - now : 0);
		e->state_sent = now;
	} else if (n == SENSE_SLOT_HINT) {
		if (!hint)
			return;
		e->hint_advertised = hint->time;
		sense_wire_encode(opt, SENSE_WIRE_AGENT, SENSE_WIRE_HINT, hint);
	} else {
		sense_ops_encode_queue(e, opt, n / SENSE_QUEUES, n % SENSE_QUEUES, now);
	}
	if (bpf_store_hdr_opt(ops, opt, SENSE_OPT_LEN, 0))
		return;
	e->next_option = n;
	e->option_sent = now;
	e->rec.options_sent++;
}

/*
 * A request may be older than our counting, and so may the client's: what is heard first is where we
 * begin. 0, or -1 for what is not new, or from a server, which has no requests of its own.
 */
BW_INLINE int sense_ops_hear_hint(struct sense_endpoint *e, const struct sense_wire *w)
{
	struct sense_peer_queue *p = &e->rec.peer_hint;

	if (!(e->rec.flags & SENSE_F_SERVER))
		return -1;
	e->rec.flags |= SENSE_F_HINTED;
	if (!p->heard) {
		p->raw_total = w->total;
		p->raw_integral = w->integral;
	}
	return sense_wire_add(p, w);
}

/* The peer counts, and for how long. The agent follows, if it has the means. */
BW_INLINE void sense_ops_hear_window(struct sense_endpoint *e, const struct sense_wire *w, __u64 now)
{
	__u64 open = (__u64)w->integral << SENSE_WIRE_TIME_SHIFT, until;

	until = now + (open < SENSE_OPEN_MOST ? open : SENSE_OPEN_MOST);
	e->rec.peer_open_until = until;
	if (!paused || !open || now - rung_at < SENSE_RING_PERIOD)
		return;
	rung_at = now;
	bpf_ringbuf_output(&doorbell, &until, sizeof(until), 0);
}

/* 0, or -1 for what is unknown or not new. */
BW_INLINE int sense_ops_hear(struct sense_endpoint *e, const struct sense_wire *w)
{
	if (w->unit < SENSE_UNITS && w->queue < SENSE_QUEUES) {
		e->rec.flags &= ~SENSE_F_HINTED;
		return sense_wire_add(&e->rec.peer[w->unit][w->queue], w);
	}
	if (w->unit != SENSE_WIRE_AGENT)
		return -1;
	if (w->queue == SENSE_WIRE_HINT)
		return sense_ops_hear_hint(e, w);
	if (w->queue != SENSE_WIRE_STATE)
		return -1;
	sense_ops_hear_window(e, w, bpf_ktime_get_ns());
	return 0;
}

/* The peer has begun to advertise: answer. Where we begin, the walk reaches the sockets. */
BW_INLINE void sense_answer(struct bpf_sock_ops *ops, struct sense_endpoint *e)
{
	if (!e->silent || paused)
		return;
	e->silent = 0;
	sense_ops_flags(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG, 0);
}

BW_INLINE void sense_ops_parse(struct bpf_sock_ops *ops)
{
	__u8 opt[SENSE_OPT_LEN] = { SENSE_OPT_KIND, SENSE_OPT_HELLO_LEN, SENSE_OPT_EXID >> 8,
				 SENSE_OPT_EXID & 0xff };
	struct sense_endpoint *e = sense_ops_member(ops);
	struct sense_wire w;
	long len;

	if (!e)
		return;
	sense_runs()->member++;
	len = bpf_load_hdr_opt(ops, opt, sizeof(opt), 0);
	if (len < 0)
		return;
	sense_version_bump(e);
	if (len != SENSE_OPT_LEN || sense_wire_decode(opt, &w) || sense_ops_hear(e, &w)) {
		e->rec.options_refused++;
	} else {
		e->rec.options_heard++;
		if (!(e->rec.flags & SENSE_F_AGREED)) {
			e->rec.flags |= SENSE_F_AGREED;
			sense_ops_flags(ops, SENSE_CB_FLAGS, 0);
		}
	}
	sense_version_bump(e);
	sense_answer(ops, e);
}

SEC("?sockops")
int sense_exchange(struct bpf_sock_ops *ops)
{
	struct sense_endpoint *e;
	bool agreed;

	switch (ops->op) {
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		sense_ops_reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		sense_ops_write(ops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		sense_ops_parse(ops);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (sense_ops_port(ops))
			sense_ops_flags(ops, SENSE_CB_FLAGS, 0);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (!sense_ops_port(ops))
			break; /* its flags are another program's */
		e = sense_ops_member(ops);
		agreed = e && sense_ops_hello(ops, 0);
		if (agreed)
			e->rec.flags |= SENSE_F_AGREED;
		sense_ops_flags(ops, agreed ? SENSE_CB_FLAGS : 0, agreed ? 0 : SENSE_CB_FLAGS);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		/* Both flags came from the listener. Write only once the client was heard. */
		if (sense_ops_port(ops))
			sense_ops_flags(ops, BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG,
					BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	}
	return 1;
}

BW_INLINE void sense_listen_for_options(struct tcp_sock *tp)
{
	int flags = 0;

	bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG;
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
}

/* Listeners that were open before the agent: their SYN-ACKs are to answer, too. */
SEC("?iter/tcp")
int sense_adopt_listener(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;
	int flags = 0;

	if (!skc || skc->skc_state != TCP_LISTEN || !sense_watches(skc->skc_num, skc->skc_num))
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || !sense_cgroup_matches((struct sock *)tp))
		return 0;
	bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= SENSE_CB_FLAGS;
	bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	return 0;
}

#endif
