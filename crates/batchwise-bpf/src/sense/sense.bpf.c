// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Sensing: tracepoints that keep the queue states of the watched sockets (the paper's §3), and the
 * iterators that adopt open connections and hand the states to the agent. All hooks run under the
 * socket's lock but the state reader and bw_send_late, the stand-in for older kernels.
 */
#include "members.h"
#include "exchange.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes the socket a member, if it is to be one; NULL also where it is one already. */
BW_INLINE struct bw_endpoint *bw_start(struct sock *sk, __u32 flags)
{
	const struct tcp_sock *tp = bw_tcp(sk);
	struct bw_sock_view v;
	struct bw_endpoint *e;
	__u64 now;
	int side;

	side = bw_side(sk->__sk_common.skc_num, bpf_ntohs(sk->__sk_common.skc_dport));
	if (side < 0 || !tp || !bw_cgroup_matches(sk))
		return NULL;
	if (bpf_sk_storage_get(&endpoints, sk, NULL, 0))
		return NULL;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!e) {
		__sync_fetch_and_add(&unrecorded, 1);
		return NULL;
	}
	now = bpf_ktime_get_ns();
	bw_view(e, tp, now, &v);
	bw_version_bump(e);
	bw_identify(e, sk, side | flags);
	e->tails = bw_tails(&e->rec);
	e->rec.cookie = bpf_get_socket_cookie(sk);
	/* at birth snd_una is that of the SYN: nothing is outstanding */
	e->rec.born = now;
	e->rec.epoch = epoch;
	e->rec.app_setting_off = tp->nonagle & TCP_NAGLE_OFF;
	e->rec.info.segs_begin = bw_data_segs(tp);
	bw_resync(e, units, now, &v, flags & BW_F_BIRTH ? v.write_seq : tp->snd_una);
	e->logged_epoch = epoch;
	bw_version_bump(e);
	bw_runs()->started++;
	return e;
}

/*
 * The member that a socket is. One that was opened before the agent, or between its windows, becomes
 * one at its first event. `since`: for bw_timed_end().
 */
BW_INLINE struct bw_endpoint *bw_member(struct sock *sk, __u64 *since)
{
	struct bw_endpoint *e;

	if (paused)
		return NULL;
	if (!bw_port_matches(sk)) {
		bw_runs()->foreign++;
		return NULL;
	}
	*since = bw_run();
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	if (e || sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return e;
	bw_start(sk, 0);
	return bpf_sk_storage_get(&endpoints, sk, NULL, 0);
}

/* A hook in process context begins to write the record: the time, and what the socket says. */
BW_INLINE __u64 bw_begin(struct bw_endpoint *e, const struct tcp_sock *tp, struct bw_sock_view *v)
{
	__u64 now = bpf_ktime_get_ns();

	bw_view(e, tp, now, v);
	bw_version_bump(e);
	bw_wake(e, tp, v);
	bw_drain_log(e);
	return now;
}

/* The same at an epoch's first event, if that is an arrival. */
BW_INLINE void bw_wake_logging(struct bw_endpoint *e, const struct tcp_sock *tp, __u64 now)
{
	struct bw_sock_view v;

	bw_view(e, tp, now, &v);
	bw_version_bump(e);
	bw_wake(e, tp, &v);
	bw_version_bump(e);
	e->logged_epoch = epoch;
}

/*
 * tcp_rcv_established(), at its entry: snd_una and rcv_nxt are still old. Often on another CPU than
 * the application's: only logs.
 */
SEC("tp_btf/tcp_probe")
int BPF_PROG(bw_segment, struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	__u64 since = 0;
	struct bw_endpoint *e = bw_member(sk, &since);
	__u32 seq, len, flags, nsegs = 1;
	const struct tcp_sock *tp;
	__u64 now, last_tx = 0;

	tp = e ? bw_tcp(sk) : NULL;
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns(); /* first: it waits for loads before it */
	if (e->logged_epoch != epoch)
		bw_wake_logging(e, tp, now);
	seq = cb->seq;
	flags = cb->tcp_flags;
	len = cb->end_seq - seq - (flags & TCPHDR_FIN);
	if (BW_WANT(units, BW_SEGS))
		nsegs = bw_gso_segs(skb) ?: 1;
	if (bw_log_wants_last_tx(e, now))
		last_tx = tp->tcp_wstamp_ns;
	bw_log(e, now, last_tx, seq, cb->ack_seq, tp->rcv_wup,
	       bw_arrival_extent(len, nsegs, flags & TCPHDR_PSH));
	if (bw_log_is_filling(e)) {
		bw_version_bump(e);
		bw_drain_log(e);
		bw_version_bump(e);
	}
	bw_timed_end(since);
	return 0;
}

/* tcp_recvmsg_locked() and its like, once bytes were taken: copied_seq is new. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(bw_read, struct sock *sk)
{
	__u64 since = 0;
	struct bw_endpoint *e = bw_member(sk, &since);
	const struct tcp_sock *tp = e ? bw_tcp(sk) : NULL;
	struct bw_sock_view v;
	__u64 now;

	if (!tp)
		return 0;
	now = bw_begin(e, tp, &v);
	bw_on_read(e, units, now, &v);
	if (tailing)
		bw_match_read(e, now, bw_hist(e));
	bw_version_bump(e);
	bw_timed_end(since);
	return 0;
}

/* tcp_sendmsg_locked(), before bytes are taken: write_seq is old. */
BW_INLINE int bw_sendmsg(struct sock *sk, const struct msghdr *msg)
{
	__u64 since = 0;
	struct bw_endpoint *e = bw_member(sk, &since);
	const struct tcp_sock *tp = e ? bw_tcp(sk) : NULL;
	struct bw_sock_view v;
	__u64 now;

	if (!tp)
		return 0;
	now = bw_begin(e, tp, &v);
	bw_on_send(e, units, now, &v, v.write_seq + (__u32)msg->msg_iter.count,
		   msg->msg_flags & MSG_MORE, tp->mss_cache);
	if (tailing)
		bw_match_send(e, now, bw_hist(e));
	bw_version_bump(e);
	bw_timed_end(since);
	return 0;
}

/* One of the three sees what is sent: features/table.rs has their order. */
SEC("?tp_btf/tcp_sendmsg_locked")
int BPF_PROG(bw_send, struct sock *sk, const struct msghdr *msg)
{
	return bw_sendmsg(sk, msg);
}

SEC("?fentry/tcp_sendmsg_locked")
int BPF_PROG(bw_send_entry, struct sock *sk, const struct msghdr *msg)
{
	return bw_sendmsg(sk, msg);
}

/* After the call. */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(bw_send_late, struct sock *sk, int ret, int flags)
{
	const struct tcp_sock *tp;
	struct bw_endpoint *e;
	struct bw_sock_view v;
	__u64 now, since = 0;

	if (ret <= 0 || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	e = bw_member(sk, &since);
	tp = e ? bw_tcp(sk) : NULL;
	if (!tp)
		return 0;
	now = bw_begin(e, tp, &v);
	v.write_seq = e->wend;
	bw_on_send(e, units, now, &v, tp->write_seq, flags & MSG_MORE, tp->mss_cache);
	if (tailing)
		bw_match_send(e, now, bw_hist(e));
	bw_on_ack(e, units, now, tp->snd_una);
	bw_version_bump(e);
	bw_timed_end(since);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(bw_state, struct sock *sk, int old, int new)
{
	const struct tcp_sock *tp;
	struct bw_endpoint *e;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new == TCP_ESTABLISHED) {
		bw_start(sk, BW_F_BIRTH);
		return 0;
	}
	/* a closing server's socket has already lost its port: only its storage tells */
	if (new != TCP_CLOSE)
		return 0;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	tp = e ? bw_tcp(sk) : NULL;
	if (!tp)
		return 0;
	e->rec.flags |= BW_F_CLOSED;
	bw_drain_log_apart(e);
	bw_sock_info(e, tp);
	if (bpf_ringbuf_output(&closed, &e->rec, sizeof(e->rec), 0))
		__sync_fetch_and_add(&lost_events, 1);
	bpf_sk_storage_delete(&endpoints, sk);
	return 0;
}

/* Connections that were open before the agent; walks the network namespace of whoever opens it. */
SEC("iter/tcp")
int bw_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;

	agent = bpf_get_current_pid_tgid() >> 32;
	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || skc->skc_state != TCP_ESTABLISHED || !bw_start((struct sock *)tp, 0))
		return 0;
	/* an agent before us may have agreed on the exchange: if the peer goes on, so do we */
	if (exchanging)
		bw_listen_for_options(tp);
	return 0;
}

/* Whether items have been queued since the epoch's beginning, or since their event in it. */
BW_INLINE bool bw_holds(const struct bw_endpoint *e, const struct tcp_sock *tp)
{
	struct bw_sock_view v;
	__u32 items = 0;

	for (int i = 0; i < BW_QUEUES; i++)
		items |= e->rec.q[BW_CALLS][i].size | e->rec.q[BW_BYTES][i].size;
	if (!items)
		return false;
	bw_view(e, tp, 0, &v);
	return e->rec.epoch == epoch || bw_is_unchanged(e, &v, tp->snd_una);
}

/* Counts the requests that were under way when the epoch ended as that. */
BW_APART int bw_censor(struct bw_endpoint *e)
{
	__u32 unfinished;

	if (!e || e->tails >= BW_TAILS)
		return 0;
	unfinished = e->tails + BW_TAILS;
	bw_asks_censor(&e->asks, bpf_map_lookup_elem(&tails, &unfinished), epoch_ended);
	return 0;
}

BW_INLINE void bw_hand_over(const void *from, __u32 size)
{
	__u64 at = page.used;

	if (at > BW_PAGE - size)
		return; /* it never is: see bw_tell() */
	bpf_probe_read_kernel(&page.bytes[at], size, from);
	page.used = at + size;
}

/* Hands a connection to the agent. */
BW_INLINE int bw_tell(struct seq_file *seq, struct tcp_sock *tp)
{
	struct bw_endpoint *e = tp ? bpf_sk_storage_get(&endpoints, tp, NULL, 0) : NULL;
	__u64 entry, version, after;
	bool holds;

	if (!e)
		return 0;
	if (paused && e->rec.epoch == epoch && e->censored != epoch) {
		e->censored = epoch;
		bw_censor(e);
	}
	version = bw_load(&e->rec.version);
	holds = bw_holds(e, tp);
	bw_sock_info(e, tp);
	if (brief && !holds && e->told == version && e->logged == e->tail) {
		struct bw_quiet quiet = {
			.cookie = e->rec.cookie,
			.born = e->rec.born,
			.app_setting_off = e->rec.app_setting_off,
			.info = e->rec.info,
		};

		entry = BW_ENTRY_QUIET;
		bw_hand_over(&entry, sizeof(entry));
		bw_hand_over(&quiet, sizeof(quiet));
	} else {
		entry = holds && e->rec.epoch != epoch ? BW_ENTRY_HELD : BW_ENTRY_RECORD;
		bw_hand_over(&entry, sizeof(entry));
		bw_hand_over(&e->rec, sizeof(e->rec));
		after = bw_load(&e->rec.version) == version ? version : -1ULL;
		bw_hand_over(&after, sizeof(after));
		if (after == version)
			e->told = version;
	}
	/* the reader asks for a byte: it is back before the next connection, and empties the page */
	if (page.used > BW_PAGE - BW_ENTRY_MOST)
		bpf_seq_write(seq, "", 1);
	return 0;
}

/* One of the two reads the connections: features/table.rs. This one meets nothing but members. */
SEC("?iter/bpf_sk_storage_map")
int bw_dump(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? bw_tell(ctx->meta->seq, bpf_skc_to_tcp_sock(sk)) : 0;
}

/* All descriptors of all processes. What nobody has accepted yet, or its owner has closed, has none. */
SEC("?iter/task_file")
int bw_dump_files(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;
	struct sock *sk = socket ? socket->sk : NULL;

	return sk ? bw_tell(ctx->meta->seq, bpf_skc_to_tcp_sock(sk)) : 0;
}

/* No struct has these: they tell the loader's generator of them. */
enum bw_unit *of_unit;
enum bw_record_flag *of_record_flag;
enum bw_entry *of_entry;
enum bw_tails_size *of_tails_size;
enum bw_hist_size *of_hist_size;
enum bw_controls_size *of_controls_size;
struct bw_quiet *of_quiet;
struct bw_owner *of_owner;
