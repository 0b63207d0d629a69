// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Sensing: tracepoints that keep the queue states of the watched sockets (the paper's §3), and the
 * iterators that adopt open connections and hand the states to the agent. All hooks run under the
 * socket's lock but the state reader and sense_send_late, the stand-in for older kernels.
 */
#include "members.h"
#include "exchange.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes the socket a member, if it is to be one; NULL also where it is one already. */
BW_INLINE struct sense_endpoint *sense_start(struct sock *sk, __u32 flags)
{
	const struct tcp_sock *tp = sense_tcp(sk);
	struct sense_sock_view v;
	struct sense_endpoint *e;
	__u64 now;
	int side;

	if (!sense_port_matches(&sk->__sk_common) || !tp)
		return NULL;
	side = sense_side(tp);
	if (side < 0 || !sense_cgroup_matches(sk))
		return NULL;
	if (bpf_sk_storage_get(&endpoints, sk, NULL, 0))
		return NULL;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!e) {
		__sync_fetch_and_add(&unrecorded, 1);
		return NULL;
	}
	now = bpf_ktime_get_ns();
	sense_view(tp, &v);
	sense_version_bump(e);
	sense_identify(e, sk, side | flags);
	e->tails = sense_tails_find(&e->rec);
	e->rec.cookie = bpf_get_socket_cookie(sk);
	/* at birth snd_una is that of the SYN: nothing is outstanding */
	e->rec.born = now;
	e->rec.epoch = epoch;
	e->rec.app_setting_off = tp->nonagle & TCP_NAGLE_OFF;
	e->rec.info.segs_begin = sense_data_segs(tp);
	sense_resync(e, units, now, &v, flags & SENSE_F_BIRTH ? v.write_seq : tp->snd_una);
	e->logged_epoch = epoch;
	sense_version_bump(e);
	sense_runs()->started++;
	return e;
}

/*
 * The member that a socket is. One that was opened before the agent, or between its windows, becomes
 * one at its first event. `since`: for sense_timed_end().
 */
BW_INLINE struct sense_endpoint *sense_member(struct sock *sk, __u64 *since)
{
	struct sense_endpoint *e;

	if (paused)
		return NULL;
	if (!sense_port_matches(&sk->__sk_common)) {
		sense_runs()->foreign++;
		return NULL;
	}
	*since = sense_run();
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	if (e || sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return e;
	sense_start(sk, 0);
	return bpf_sk_storage_get(&endpoints, sk, NULL, 0);
}

/* A hook in process context begins to write the record: the time, and what the socket says. */
BW_INLINE __u64 sense_begin(struct sense_endpoint *e, const struct tcp_sock *tp, struct sense_sock_view *v)
{
	__u64 now = bpf_ktime_get_ns();

	sense_view(tp, v);
	sense_version_bump(e);
	sense_wake(e, tp, v);
	sense_drain_log(e);
	return now;
}

/* The same at an epoch's first event, if that is an arrival. */
BW_INLINE void sense_wake_logging(struct sense_endpoint *e, const struct tcp_sock *tp, __u64 now)
{
	struct sense_sock_view v;

	sense_view(tp, &v);
	sense_version_bump(e);
	sense_wake(e, tp, &v);
	sense_version_bump(e);
	e->logged_epoch = epoch;
}

/*
 * The application has read or sent: what is over is timed. A client's requests are when it reads, a server's when it
 * sends; the turn before is counted with them, as the histograms' look-up is dear.
 */
BW_INLINE void sense_time(struct sense_endpoint *e, __u64 now, bool sends)
{
	bool is_server = e->rec.flags & SENSE_F_SERVER;
	struct sense_tails *t = NULL;

	if (!tailing)
		return;
	if (is_server == sends)
		t = sense_tails_of(e);
	if (sends)
		sense_match_send(e, now, t ? &t->matched : NULL);
	else
		sense_match_read(e, now, t ? &t->matched : NULL);
	sense_count_turn(e, t);
}

/*
 * tcp_rcv_established(), at its entry: snd_una and rcv_nxt are still old. Often on another CPU than
 * the application's: only logs.
 */
SEC("tp_btf/tcp_probe")
int BPF_PROG(sense_segment, struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	__u64 since = 0;
	struct sense_endpoint *e = sense_member(sk, &since);
	__u32 seq, len, flags, nsegs = 1;
	const struct tcp_sock *tp;
	__u64 now;

	tp = e ? sense_tcp(sk) : NULL;
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns(); /* first: it waits for loads before it */
	if (e->logged_epoch != epoch)
		sense_wake_logging(e, tp, now);
	seq = cb->seq;
	flags = cb->tcp_flags;
	len = cb->end_seq - seq - (flags & TCPHDR_FIN);
	if (SENSE_WANT(units, SENSE_SEGS))
		nsegs = sense_gso_segs(skb) ?: 1;
	sense_log(e, now, tp->tcp_wstamp_ns, seq, cb->ack_seq, tp->rcv_wup,
		  sense_arrival_extent(len, nsegs, sense_backlog(tp->write_seq, tp->snd_nxt, sense_nagled(tp)),
				       flags & TCPHDR_PSH));
	if (sense_log_is_filling(e)) {
		sense_version_bump(e);
		sense_drain_log(e);
		sense_version_bump(e);
	}
	sense_timed_end(since);
	return 0;
}

/* tcp_recvmsg_locked() and its like, once bytes were taken: copied_seq is new. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(sense_read, struct sock *sk)
{
	__u64 since = 0;
	struct sense_endpoint *e = sense_member(sk, &since);
	const struct tcp_sock *tp = e ? sense_tcp(sk) : NULL;
	struct sense_sock_view v;
	__u64 now;

	if (!tp)
		return 0;
	now = sense_begin(e, tp, &v);
	sense_on_read(e, units, now, &v);
	sense_time(e, now, false);
	sense_version_bump(e);
	sense_timed_end(since);
	return 0;
}

/* tcp_sendmsg_locked(), before bytes are taken: write_seq is old. */
BW_INLINE int sense_sendmsg(struct sock *sk, const struct msghdr *msg)
{
	__u64 since = 0;
	struct sense_endpoint *e = sense_member(sk, &since);
	const struct tcp_sock *tp = e ? sense_tcp(sk) : NULL;
	struct sense_sock_view v;
	__u64 now;

	if (!tp)
		return 0;
	now = sense_begin(e, tp, &v);
	sense_on_send(e, units, now, &v, v.write_seq + (__u32)msg->msg_iter.count,
		      msg->msg_flags & MSG_MORE, tp->mss_cache);
	sense_time(e, now, true);
	sense_version_bump(e);
	sense_timed_end(since);
	return 0;
}

/* One of the three sees what is sent: features/table.rs has their order. */
SEC("?tp_btf/tcp_sendmsg_locked")
int BPF_PROG(sense_send, struct sock *sk, const struct msghdr *msg)
{
	return sense_sendmsg(sk, msg);
}

SEC("?fentry/tcp_sendmsg_locked")
int BPF_PROG(sense_send_entry, struct sock *sk, const struct msghdr *msg)
{
	return sense_sendmsg(sk, msg);
}

/* After the call. */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(sense_send_late, struct sock *sk, int ret, int flags)
{
	const struct tcp_sock *tp;
	struct sense_endpoint *e;
	struct sense_sock_view v;
	__u64 now, since = 0;

	if (ret <= 0 || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	e = sense_member(sk, &since);
	tp = e ? sense_tcp(sk) : NULL;
	if (!tp)
		return 0;
	now = sense_begin(e, tp, &v);
	v.write_seq = e->wend;
	sense_on_send(e, units, now, &v, tp->write_seq, flags & MSG_MORE, tp->mss_cache);
	sense_time(e, now, true);
	sense_on_ack(e, units, now, tp->snd_una);
	sense_version_bump(e);
	sense_timed_end(since);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sense_state, struct sock *sk, int old, int new)
{
	const struct tcp_sock *tp;
	struct sense_endpoint *e;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new == TCP_ESTABLISHED) {
		sense_start(sk, SENSE_F_BIRTH);
		return 0;
	}
	/* a closing server's socket has already lost its port: only its storage tells */
	if (new != TCP_CLOSE)
		return 0;
	e = bpf_sk_storage_get(&endpoints, sk, NULL, 0);
	tp = e ? sense_tcp(sk) : NULL;
	if (!tp)
		return 0;
	/* it stays odd: whoever reads the connections meanwhile has this one from the ring */
	sense_version_bump(e);
	e->rec.flags |= SENSE_F_CLOSED;
	sense_drain_log_apart(e);
	if (e->rec.epoch == epoch && !paused) {
		__u64 now = bpf_ktime_get_ns();

		sense_finish_turn(e, now);
		sense_cut_off(e, 0, now);
	}
	sense_sock_info(e, tp);
	if (bpf_ringbuf_output(&closed, &e->rec, sizeof(e->rec), 0))
		__sync_fetch_and_add(&lost_events, 1);
	bpf_sk_storage_delete(&endpoints, sk);
	return 0;
}

/* Connections that were open before the agent; walks the network namespace of whoever opens it. */
SEC("iter/tcp")
int sense_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;

	agent = bpf_get_current_pid_tgid() >> 32;
	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || skc->skc_state != TCP_ESTABLISHED || !sense_start((struct sock *)tp, 0))
		return 0;
	/* an agent before us may have agreed on the exchange: if the peer goes on, so do we */
	if (exchanging)
		sense_listen_for_options(tp);
	return 0;
}

/* Whether items are queued as far as is known. What a client has read and does not answer is no queue of anybody's. */
BW_INLINE bool sense_holds(const struct sense_endpoint *e)
{
	__u32 items = 0;

	for (int i = 0; i < SENSE_QUEUES; i++) {
		if (i == SENSE_TURNAROUND && !(e->rec.flags & SENSE_F_SERVER))
			continue;
		items |= e->rec.q[SENSE_CALLS][i].size | e->rec.q[SENSE_BYTES][i].size;
	}
	return items;
}

/*
 * The epoch has ended. What began in it and is under way counts as that, and what had been answered as over:
 * nothing that came later is known.
 */
BW_NOINLINE int sense_censor(struct sense_endpoint *e)
{
	if (e) {
		sense_finish_turn(e, epoch_ended);
		sense_cut_off(e, epoch_began, epoch_ended);
	}
	return 0;
}

BW_INLINE void sense_hand_over(const void *from, __u32 size)
{
	__u64 at = page.used;

	if (at > SENSE_PAGE - size)
		return; /* it never is: see sense_report() */
	bpf_probe_read_kernel(&page.bytes[at], size, from);
	page.used = at + size;
}

/* What makes a connection without an event worth to be told of. A round trip alone does not. */
struct sense_news {
	__u64 bytes;
	__u64 segs;
	__u32 outstanding;
	__u32 unread;
	__u32 flags;
	__u32 resent;
	__u32 window_full_us;
};

BW_INLINE void sense_news(const struct sense_sock_info *info, struct sense_news *news)
{
	news->bytes = info->bytes;
	news->segs = info->segs;
	news->outstanding = info->outstanding;
	news->unread = info->unread;
	news->flags = info->nonagle | info->state << 8 | info->bypass << 16;
	news->resent = info->resent;
	news->window_full_us = info->window_full_us;
}

/* Hands a connection to the agent. */
BW_INLINE int sense_report(struct seq_file *seq, struct tcp_sock *tp)
{
	struct sense_endpoint *e = tp ? bpf_sk_storage_get(&endpoints, tp, NULL, 0) : NULL;
	struct sense_news before, now;
	__u64 entry, version, after;
	bool counted, holds;
	struct sense_sock_view v;

	if (!e)
		return 0;
	sense_hold_tails(e);
	if (paused && e->rec.epoch == epoch && e->censored != epoch) {
		e->censored = epoch;
		sense_censor(e);
	}
	version = bw_load(&e->rec.version);
	sense_view(tp, &v);
	counted = e->rec.epoch == epoch;
	sense_news(&e->rec.info, &before);
	sense_sock_info(e, tp);
	sense_news(&e->rec.info, &now);
	if (counted || sense_is_still(e, &v))
		sense_count_under_way(e, paused ? epoch_ended : bpf_ktime_get_ns());
	holds = counted || sense_is_unchanged(e, &v, tp->snd_una);
	if (holds)
		e->rec.info.backlog = sense_backlog(v.write_seq, v.snd_nxt, v.nagled);
	holds = holds && sense_holds(e);
	/* arrivals in the log are news only while this epoch counts: they are worked off in it, or never */
	if (brief && !holds && e->told == version && !(counted && e->logged != e->tail)) {
		if (brief == SENSE_BRIEF_NEWS && before.bytes == now.bytes && before.segs == now.segs &&
		    before.outstanding == now.outstanding && before.unread == now.unread &&
		    before.flags == now.flags && before.resent == now.resent &&
		    before.window_full_us == now.window_full_us)
			return 0;
		struct sense_quiet quiet = {
			.cookie = e->rec.cookie,
			.born = e->rec.born,
			.app_setting_off = e->rec.app_setting_off,
			.acks = e->rec.acks,
			.info = e->rec.info,
		};

		entry = SENSE_ENTRY_QUIET;
		sense_hand_over(&entry, sizeof(entry));
		sense_hand_over(&quiet, sizeof(quiet));
	} else {
		entry = holds && e->rec.epoch != epoch ? SENSE_ENTRY_HELD : SENSE_ENTRY_RECORD;
		sense_hand_over(&entry, sizeof(entry));
		sense_hand_over(&e->rec, sizeof(e->rec));
		after = bw_load(&e->rec.version) == version ? version : -1ULL;
		sense_hand_over(&after, sizeof(after));
		if (after == version)
			e->told = version;
	}
	/* the reader asks for a byte: it is back before the next connection, and empties the page */
	if (page.used > SENSE_PAGE - SENSE_ENTRY_MOST)
		bpf_seq_write(seq, "", 1);
	return 0;
}

/* One of the two reads the connections: features/table.rs. This one meets nothing but members. */
SEC("?iter/bpf_sk_storage_map")
int sense_dump(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	return sk ? sense_report(ctx->meta->seq, bpf_skc_to_tcp_sock(sk)) : 0;
}

/* All descriptors of all processes. What nobody has accepted yet, or its owner has closed, has none. */
SEC("?iter/task_file")
int sense_dump_files(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;
	struct sock *sk = socket ? socket->sk : NULL;

	return sk ? sense_report(ctx->meta->seq, bpf_skc_to_tcp_sock(sk)) : 0;
}

/* No struct has these: they tell the loader's generator of them. */
enum sense_unit *of_unit;
enum sense_backlog *of_backlog;
enum sense_sock_state *of_sock_state;
enum sense_record_flag *of_record_flag;
enum sense_bypass *of_bypass;
enum sense_entry *of_entry;
enum sense_brief *of_brief;
enum sense_tails_size *of_tails_size;
enum sense_hist_size *of_hist_size;
enum sense_controls_size *of_controls_size;
struct sense_quiet *of_quiet;
struct sense_owner *of_owner;
struct sense_tails *of_tails;
