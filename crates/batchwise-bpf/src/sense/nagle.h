/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Acting: brings a service's sockets in line with what the agent decided, and remembers what each application
 * asked for itself.
 */
#ifndef SENSE_NAGLE_H
#define SENSE_NAGLE_H

#include "control.h"

BW_INLINE void sense_ops_flags(struct bpf_sock_ops *ops, __u32 set, __u32 clear)
{
	if (foreign_sockops)
		clear = 0;
	bpf_sock_ops_cb_flags_set(ops, (ops->bpf_sock_ops_cb_flags & ~clear) | set);
}

/* Who says how long acknowledgments wait: the kernel, the agent, or, though the agent wants them soon, someone else. */
enum { SENSE_ACK_LATE, SENSE_ACK_OURS, SENSE_ACK_THEIRS };

#define SENSE_DELACK_LEAST 2 /* jiffies, TCP_TIMEOUT_MIN */

/* How long acknowledgments wait at most. Whoever has another idea of it than the kernel keeps that, and is not asked again. */
BW_INLINE void sense_set_ack_soon(struct sense_endpoint *e, struct tcp_sock *tp, __u32 soon)
{
	__u32 usual = jiffy_us ? 200000 / jiffy_us : 0; /* TCP_DELACK_MAX */
	int us = (soon ? SENSE_DELACK_LEAST : usual) * jiffy_us;
	bool ours;

	if (soon == !!e->ack_soon)
		return;
	ours = e->ack_soon != SENSE_ACK_THEIRS &&
	       tp->inet_conn.icsk_delack_max == (soon ? usual : SENSE_DELACK_LEAST) &&
	       !bpf_setsockopt(tp, SOL_TCP, TCP_BPF_DELACK_MAX, &us, sizeof(us));
	e->ack_soon = !soon ? SENSE_ACK_LATE : ours ? SENSE_ACK_OURS : SENSE_ACK_THEIRS;
}

/*
 * Walks all TCP sockets of the network namespace of whoever opens it: about a millisecond, most of
 * it for the empty buckets of the kernel's table. The socket's lock is held here. Once the agent is gone it tells
 * the cookies of those that have their applications' settings.
 */
SEC("?iter/tcp")
int sense_apply(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct sense_control *decided;
	struct sense_endpoint *e;
	struct tcp_sock *tp;
	__u32 *asked;
	int off, flags;

	if (!skc || !sense_port_matches(skc))
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	e = bpf_sk_storage_get(&endpoints, (struct sock *)tp, NULL, 0);
	if (!e)
		return 0;
	if (!tuning) {
		/* the exchange goes on after a pause */
		flags = tp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
		if (e->silent && !paused &&
		    !bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
			e->silent = 0;
		return 0;
	}
	asked = bpf_map_lookup_elem(&orphaned_settings, &e->rec.cookie);
	if (asked)
		e->rec.app_setting_off = !!*asked;
	decided = sense_decided(e);
	sense_set_ack_soon(e, tp, decided && decided->arm == SENSE_ARM_ACK_SOON);
	off = sense_wants_nagle_off(e, decided);
	if (off != !!(tp->nonagle & TCP_NAGLE_OFF)) {
		/* TCP_NODELAY pushes what the application holds back itself: only to give it back */
		if (off && tp->nonagle & TCP_NAGLE_CORK && !asked && !sense_is_released())
			return 0;
		if (bpf_setsockopt(tp, SOL_TCP, TCP_NODELAY, &off, sizeof(off)))
			return 0;
	}
	if (sense_is_released())
		bpf_seq_write(ctx->meta->seq, &e->rec.cookie, sizeof(e->rec.cookie));
	return 0;
}

/* Where it listens, if it does. */
BW_INLINE void sense_listens(const struct sock *sk, struct sense_service *at)
{
	if (sk->sk_protocol != IPPROTO_TCP || sk->__sk_common.skc_state != TCP_LISTEN)
		return;
	at->server = 1;
	at->port = sk->__sk_common.skc_num;
	at->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (sk->__sk_common.skc_family == AF_INET6)
		BPF_CORE_READ_INTO(&at->addr, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8);
	else
		sense_addr(at->addr, sk->__sk_common.skc_rcv_saddr);
}

/* Walks all descriptors of all processes: whose the watched sockets are, and those that an agent left behind. */
SEC("?iter/task_file")
int sense_owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sense_owner owner = {};
	struct sense_endpoint *e;
	struct socket *socket;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket || !socket->sk)
		return 0;
	e = bpf_sk_storage_get(&endpoints, socket->sk, NULL, 0);
	owner.cookie = e ? e->rec.cookie : socket->sk->__sk_common.skc_cookie.counter;
	if (!e && naming)
		sense_listens(socket->sk, &owner.listens);
	if (!e && !owner.listens.port && !bpf_map_lookup_elem(&orphaned_settings, &owner.cookie))
		return 0;
	owner.tgid = task->tgid;
	owner.fd = ctx->fd;
	bpf_seq_write(ctx->meta->seq, &owner, sizeof(owner));
	return 0;
}

/*
 * An application sets TCP_NODELAY: from now on that is its own setting, and in force. Where the agent has
 * decided otherwise, it writes this down before it switches the socket again.
 */
SEC("?cgroup/setsockopt")
int sense_app_setting(struct bpf_sockopt *ctx)
{
	const int *value = ctx->optval;
	struct sense_endpoint *e;

	/*
	 * Only a page of a longer option is shown. Linux before 6.4 refuses such an option, whoever sets it,
	 * unless optlen is 0: what the application has counts. iptables replaces its tables by one.
	 */
	if (ctx->optval_end - ctx->optval < ctx->optlen)
		ctx->optlen = 0;
	if (ctx->level != SOL_TCP || ctx->optname != TCP_NODELAY || !ctx->sk)
		return 1;
	if (bpf_get_current_pid_tgid() >> 32 == agent)
		return 1;
	if ((void *)(value + 1) > ctx->optval_end)
		return 1;
	e = bpf_sk_storage_get(&endpoints, ctx->sk, NULL, 0);
	if (!e)
		return 1;
	e->rec.app_setting_off = !!*value;
	e->told = 0; /* that is news */
	return 1;
}

#endif
