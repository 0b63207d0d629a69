/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Acting: brings the Nagle setting of a service's sockets in line with what the agent decided, and
 * remembers what each application asked for itself.
 */
#ifndef BW_NAGLE_H
#define BW_NAGLE_H

#include "control.h"

BW_INLINE void bw_ops_flags(struct bpf_sock_ops *ops, __u32 set, __u32 clear)
{
	bpf_sock_ops_cb_flags_set(ops, (ops->bpf_sock_ops_cb_flags & ~clear) | set);
}

/*
 * Walks all TCP sockets of the network namespace of whoever opens it: about a millisecond, most of
 * it for the empty buckets of the kernel's table. The socket's lock is held here.
 */
SEC("?iter/tcp")
int bw_apply(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct bw_endpoint *e;
	struct tcp_sock *tp;
	int off, flags;

	if (!skc || bw_side(skc->skc_num, bpf_ntohs(skc->skc_dport)) < 0)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	e = bpf_sk_storage_get(&endpoints, (struct sock *)tp, NULL, 0);
	if (!e)
		return 0;
	flags = tp->bpf_sock_ops_cb_flags;
	if (!!bw_limit(e) != e->limited)
		flags ^= BPF_SOCK_OPS_RTT_CB_FLAG;
	if (e->silent && !paused)
		flags |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (flags != tp->bpf_sock_ops_cb_flags &&
	    !bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags))) {
		e->limited = !!bw_limit(e);
		e->silent = e->silent && paused;
	}
	if (!tuning)
		return 0; /* only to go on with the exchange after a pause */
	off = bw_wants_nagle_off(e);
	if (off == !!(tp->nonagle & TCP_NAGLE_OFF))
		return 0;
	bpf_setsockopt(tp, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
	return 0;
}

/*
 * A segment with an option arrived: the cheap way to bring an active socket in line, within a period
 * of the exchange. (A push from here calls the exchange's callbacks again, which change nothing that
 * is in use.) The walk reaches the idle ones.
 */
BW_INLINE void bw_follow(struct bpf_sock_ops *ops, struct bw_endpoint *e)
{
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;
	int off;

	if (!tuning || !sk)
		return;
	if (!!bw_limit(e) != e->limited) {
		e->limited = !e->limited;
		bw_ops_flags(ops, e->limited ? BPF_SOCK_OPS_RTT_CB_FLAG : 0,
			     e->limited ? 0 : BPF_SOCK_OPS_RTT_CB_FLAG);
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	off = bw_wants_nagle_off(e);
	if (off != !!(tp->nonagle & TCP_NAGLE_OFF))
		bpf_setsockopt(ops, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
}

/*
 * A batching limit (§5, "Better Batching Heuristics"): an ACK that finds more held back than the
 * limit releases it, also where Nagle's algorithm would wait for another one. Setting TCP_NODELAY
 * pushes what is pending; clearing it again changes nothing but what comes after.
 */
BW_INLINE void bw_flush(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	int on = 1, off = 0;
	struct bw_endpoint *e;
	struct tcp_sock *tp;
	__u32 limit;

	e = sk ? bpf_sk_storage_get(&endpoints, sk, NULL, 0) : NULL;
	if (!e)
		return;
	limit = bw_limit(e);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!limit || !tp || tp->write_seq - tp->snd_nxt < limit)
		return;
	if (!bpf_setsockopt(ops, SOL_TCP, TCP_NODELAY, &on, sizeof(on)))
		bpf_setsockopt(ops, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
}

/*
 * An application sets TCP_NODELAY: from now on that is its own setting. While the agent has decided
 * otherwise, the decision goes into effect instead.
 */
SEC("?cgroup/setsockopt")
int bw_app_setting(struct bpf_sockopt *ctx)
{
	int *value = ctx->optval;
	struct bw_endpoint *e;

	if (ctx->level != SOL_TCP || ctx->optname != TCP_NODELAY || !ctx->sk)
		return 1;
	if ((void *)(value + 1) > ctx->optval_end)
		return 1;
	e = bpf_sk_storage_get(&endpoints, ctx->sk, NULL, 0);
	if (!e)
		return 1;
	e->rec.app_setting_off = !!*value;
	*value = bw_wants_nagle_off(e);
	return 1;
}

#endif
