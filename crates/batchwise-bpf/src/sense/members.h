/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which sockets are watched (port, cgroup), and the storage that makes a socket a member. The hooks
 * pass over sockets without storage.
 */
#ifndef SENSE_MEMBERS_H
#define SENSE_MEMBERS_H

#include "../lib/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "sense_intf.h"

/* include/net/sock.h: flags in sk_user_data, and that of those which says that it is a sockmap's */
#define SENSE_USER_DATA_FLAGS 7ULL
#define SENSE_USER_DATA_PSOCK 4ULL

#define SENSE_MAX_RANGES 9 /* and one of them is the bench's */

/* What the exchange sends in turn: a queue each, then the agent's state, then the hint. */
enum { SENSE_SLOT_STATE = SENSE_UNITS * SENSE_QUEUES, SENSE_SLOT_HINT, SENSE_SLOTS };

/* Set by the loader before the programs are verified, so that what is off costs nothing. */
const volatile __u32 units;
const volatile __u32 advertised_units = 1 << SENSE_CALLS | 1 << SENSE_BYTES; /* to the peer */
const volatile struct sense_ports ports[SENSE_MAX_RANGES];
const volatile __u32 n_ports;
const volatile __u16 bench_port; /* the agent's own, by which it learns what counting costs; 0: none */
const volatile __u64 cgroup_id; /* 0: any */
const volatile __u32 cgroup_level;
const volatile __u32 exchange_period_ns;
const volatile bool exchanging;
const volatile bool tailing; /* requests are matched with responses */
const volatile __u32 jiffy_us;
const volatile bool tuning;
const volatile bool naming; /* whose listeners are is told, too */
const volatile bool late_send; /* what is sent is seen after the call */
const volatile bool late_callbacks; /* TCP_BPF_SOCK_OPS_CB_FLAGS can be set from a walk */

/*
 * Whether events go uncounted. Agents count in windows, since counting costs more than a user may want
 * to pay. With each window `epoch` grows, and a connection begins anew at its first event; what is
 * queued then has been since the window began.
 */
volatile __u32 paused;
volatile __u32 epoch;
volatile __u64 epoch_began; /* ns, CLOCK_MONOTONIC */
volatile __u64 epoch_ended; /* while `paused` */

/* Other sock_ops programs are loaded: what is set on a socket may be theirs, and is left as it is. */
volatile __u32 foreign_sockops;

volatile __u32 brief; /* enum sense_brief */

struct sense_page page; /* what sense_dump hands over: sense_intf.h */

struct sense_runs runs[SENSE_MOST_CPUS] __attribute__((aligned(64)));

/* Records of connections that closed and did not fit into `closed`. */
__u64 lost_events;
/* Connections whose record could not be made: there was no memory at hand. */
__u64 unrecorded;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sense_endpoint);
} endpoints SEC(".maps");

/* Last records of connections that closed: room for 4,000 between two readings. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} closed SEC(".maps");

BW_INLINE const struct tcp_sock *sense_tcp(const struct sock *sk)
{
	return bpf_skc_to_tcp_sock((void *)sk);
}

BW_INLINE __u32 sense_gso_segs(const struct sk_buff *skb)
{
	const struct skb_shared_info *si = (const void *)(skb->head + skb->end);

	return BPF_CORE_READ(si, gso_segs);
}

BW_INLINE bool sense_watches(__u16 local, __u16 remote)
{
	for (__u32 i = 0; i < SENSE_MAX_RANGES && i < n_ports; i++)
		if ((local >= ports[i].first && local <= ports[i].last) ||
		    (remote >= ports[i].first && remote <= ports[i].last))
			return true;
	return false;
}

BW_INLINE bool sense_port_matches(const struct sock_common *skc)
{
	return sense_watches(skc->skc_num, bpf_ntohs(skc->skc_dport));
}

/*
 * A listener's child keeps the interface that its handshake came in by, where other sockets keep the one for
 * multicast (tcp_v4_syn_recv_sock(), tcp_v6_syn_recv_sock()), which setsockopt() refuses to set on a stream: so it
 * can be told as long as the socket lives, whoever listened and when.
 */
BW_INLINE bool sense_was_accepted(const struct tcp_sock *tp)
{
	const struct inet_sock *inet = &tp->inet_conn.icsk_inet;

	return inet->mc_index || (inet->sk.__sk_common.skc_family == AF_INET6 &&
				  BPF_CORE_READ(inet, pinet6, mcast_oif));
}

/*
 * SENSE_F_SERVER, 0 for a client, -1 for neither: a client may have a watched port as its own, and a server's
 * client, too.
 */
BW_INLINE int sense_side(const struct tcp_sock *tp)
{
	const struct sock_common *skc = &tp->inet_conn.icsk_inet.sk.__sk_common;
	__u16 remote = bpf_ntohs(skc->skc_dport);

	if (sense_was_accepted(tp))
		return sense_watches(skc->skc_num, skc->skc_num) ? SENSE_F_SERVER : -1;
	return sense_watches(remote, remote) ? 0 : -1;
}

/* The same test as bpf_sk_under_cgroup(), for sockets rather than packets. */
BW_INLINE bool sense_cgroup_matches(const struct sock *sk)
{
	struct cgroup *cgrp, *ancestor;
	struct cgroup___before_6_1 *older;
	__u16 port = sk->__sk_common.skc_num;
	__u64 id;

	if (!cgroup_id ||
	    (bench_port && (port == bench_port || bpf_ntohs(sk->__sk_common.skc_dport) == bench_port)))
		return true;
	cgrp = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	if (!cgrp)
		return false;
	if (bpf_core_field_exists(cgrp->ancestors))
		return !bpf_core_read(&ancestor, sizeof(ancestor), &cgrp->ancestors[cgroup_level]) &&
		       ancestor && BPF_CORE_READ(ancestor, kn, id) == cgroup_id;
	older = (void *)cgrp;
	return !bpf_core_read(&id, sizeof(id), &older->ancestor_ids[cgroup_level]) &&
	       id == cgroup_id;
}

/*
 * Which histograms a service has: their index, and SENSE_TAILS times a number that tells it from services that had
 * them before. 0 is none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SENSE_TAILS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sense_service);
	__type(value, __u32);
} services SEC(".maps");

/* By that index: requests that are over; and SENSE_TAILS further on, those that were not yet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * SENSE_TAILS);
	__type(key, __u32);
	__type(value, struct sense_tails);
} tails SEC(".maps");

__u64 tails_taken; /* a bit each; the agent gives them back */
__u32 tails_owner[SENSE_TAILS]; /* what is in `services`; 0: nobody's any more, or yet */
__u32 n_services; /* that have had any */

/* As the agent's walks find it: those that connections have, and how many connections have none. */
__u64 tails_held;
__u64 tails_wanted;

BW_INLINE struct sense_service sense_service(const struct sense_record *r)
{
	struct sense_service s = {};

	s.server = r->flags & SENSE_F_SERVER ? 1 : 0;
	s.port = s.server ? r->local_port : r->remote_port;
	s.netns = r->netns;
	__builtin_memcpy(s.addr, s.server ? r->local_addr : r->remote_addr, sizeof(s.addr));
	return s;
}

/* Takes histograms that nobody has; 0: there are none. */
BW_INLINE __u32 sense_tails_take(void)
{
	for (__u32 i = 0; i < SENSE_TAILS; i++) {
		__u64 bit = 1ULL << i;

		if (!(tails_taken & bit) && !(__sync_fetch_and_or(&tails_taken, bit) & bit))
			return (__sync_fetch_and_add(&n_services, 1) + 1) * SENSE_TAILS + i;
	}
	return 0;
}

/* What is in `services` of a record's; 0 where it has no histograms, and there is no more room. */
BW_NOINLINE __u32 sense_tails_find(const struct sense_record *r)
{
	struct sense_service key;
	__u32 *known, id;

	if (!r || !tailing)
		return 0;
	key = sense_service(r);
	if (bench_port && key.port == bench_port)
		return 0;
	known = bpf_map_lookup_elem(&services, &key);
	if (known)
		return *known;
	id = sense_tails_take();
	if (!id)
		return 0;
	tails_owner[id % SENSE_TAILS] = id;
	if (!bpf_map_update_elem(&services, &key, &id, BPF_NOEXIST))
		return id;
	/* another CPU was first, or there is no memory */
	tails_owner[id % SENSE_TAILS] = 0;
	__sync_fetch_and_and(&tails_taken, ~(1ULL << id % SENSE_TAILS));
	known = bpf_map_lookup_elem(&services, &key);
	return known ? *known : 0;
}

/* Whether it has its service's, and these are not another one's by now. */
BW_INLINE bool sense_has_tails(const struct sense_endpoint *e)
{
	return e->tails && tails_owner[e->tails % SENSE_TAILS] == e->tails;
}

/* The agent looks at the connection: one that has none tries again. */
BW_INLINE void sense_hold_tails(struct sense_endpoint *e)
{
	if (!sense_has_tails(e))
		e->tails = sense_tails_find(&e->rec);
	if (e->tails)
		tails_held |= 1ULL << e->tails % SENSE_TAILS;
	else
		tails_wanted++;
}

/* Where what is over now is counted; NULL also where nothing is. */
BW_INLINE struct sense_tails *sense_tails_of(const struct sense_endpoint *e)
{
	__u32 i = e->tails % SENSE_TAILS;

	/* a look-up is dear, so only where it is wanted */
	if ((!e->rec.turn.uncounted && !sense_is_over(e)) || !sense_has_tails(e))
		return NULL;
	return bpf_map_lookup_elem(&tails, &i);
}

BW_INLINE void sense_count_turn(struct sense_endpoint *e, struct sense_tails *t)
{
	if (!t || !e->rec.turn.uncounted)
		return;
	sense_hist_add(&t->turns, e->rec.turn.uncounted, 1);
	e->rec.turn.uncounted = 0;
}

/* No more will answer the turn that goes on. */
BW_INLINE void sense_finish_turn(struct sense_endpoint *e, __u64 now)
{
	sense_count_turn(e, sense_tails_of(e));
	sense_turn_end(&e->rec.turn, &e->rec.turns, now, e->rec.flags & SENSE_F_SERVER ? e->rcv : e->wend, 0);
	sense_count_turn(e, sense_tails_of(e));
}

/* What began at `since` or later and is under way has lasted so long, and nobody knows how much longer. */
BW_NOINLINE int sense_cut_off(struct sense_endpoint *e, __u64 since, __u64 now)
{
	struct sense_tails *t;
	__u32 unfinished;

	if (!e || !sense_has_tails(e))
		return 0;
	unfinished = e->tails % SENSE_TAILS + SENSE_TAILS;
	t = bpf_map_lookup_elem(&tails, &unfinished);
	if (!t)
		return 0;
	sense_asks_censor(&e->asks, &t->matched, since, now);
	if (e->rec.turn.began && e->rec.turn.began >= since && now > e->rec.turn.began)
		sense_hist_add(&t->turns, now - e->rec.turn.began, 1);
	return 0;
}

BW_INLINE struct sense_runs *sense_runs(void)
{
	return &runs[bpf_get_smp_processor_id() & (SENSE_MOST_CPUS - 1)];
}

/* Counts a run; when it began, if it is one to be timed, otherwise 0. */
BW_INLINE __u64 sense_run(void)
{
	struct sense_runs *r = sense_runs();

	r->member++;
	if (r->untimed) {
		r->untimed--;
		return 0;
	}
	r->untimed = SENSE_TIMED_EVERY - 1;
	return bpf_ktime_get_ns();
}

/* A run that is timed ends. */
BW_INLINE void sense_timed_end(__u64 since)
{
	struct sense_runs *r;
	__u64 took;

	if (!since)
		return;
	took = bpf_ktime_get_ns() - since;
	if (took > SENSE_TIMED_MOST)
		return;
	r = sense_runs();
	r->timed++;
	r->took += took;
}

BW_INLINE __u64 sense_data_segs(const struct tcp_sock *tp)
{
	return (__u64)tp->data_segs_in + tp->data_segs_out;
}

/* tcp_nagle_check(): less than a segment is held while data is out. */
BW_INLINE __u32 sense_nagled(const struct tcp_sock *tp)
{
	return tp->nonagle || !tp->packets_out ? 0 : tp->mss_cache;
}

BW_INLINE void sense_view(const struct tcp_sock *tp, struct sense_sock_view *v)
{
	v->write_seq = tp->write_seq;
	v->rcv_nxt = tp->rcv_nxt;
	v->copied_seq = tp->copied_seq;
	v->rcv_wup = tp->rcv_wup;
	v->last_tx = tp->tcp_wstamp_ns;
	v->snd_nxt = tp->snd_nxt;
	v->nagled = sense_nagled(tp);
}

/*
 * The record is read without the socket's lock: an odd or changed version tells the reader to read
 * again.
 */
BW_INLINE void sense_version_bump(struct sense_endpoint *e)
{
	bw_store(&e->rec.version, e->rec.version + 1);
}

/* Its loops over marks are long: the verifier walks them once, and not SENSE_LOG times at every caller. */
BW_NOINLINE int sense_drain_next_apart(struct sense_endpoint *e)
{
	if (e)
		sense_drain_next(e, units);
	return 0;
}

/*
 * Works off the arrivals that were logged. Mostly it is one, and a call costs 30 ns
 * (`lab run hook-cost`).
 */
BW_INLINE void sense_drain_log(struct sense_endpoint *e)
{
	if (!sense_is_logged(e))
		return;
	sense_drain_next(e, units);
	for (int i = 1; i < SENSE_LOG && sense_is_logged(e); i++)
		sense_drain_next_apart(e);
}

/* The same where a call does not matter. */
BW_INLINE void sense_drain_log_apart(struct sense_endpoint *e)
{
	for (int i = 0; i < SENSE_LOG && sense_is_logged(e); i++)
		sense_drain_next_apart(e);
}

BW_NOINLINE int sense_begin_anew(struct sense_endpoint *e, const struct sense_sock_view *v, __u32 snd_una)
{
	if (!e || !v)
		return 0;
	if (sense_is_unchanged(e, v, snd_una))
		sense_resume(e, epoch_began);
	else
		sense_resync(e, units, epoch_began, v, snd_una);
	return 0;
}

/*
 * Begins anew if counting has paused since the last event; before any other use of the queues. They
 * have been as they are since the epoch began.
 */
BW_INLINE void sense_wake(struct sense_endpoint *e, const struct tcp_sock *tp,
			  const struct sense_sock_view *v)
{
	if (e->rec.epoch == epoch)
		return;
	sense_begin_anew(e, v, tp->snd_una);
	e->rec.epoch = epoch;
	e->rec.info.segs_begin = sense_data_segs(tp);
	e->next_option = SENSE_SLOT_STATE - 1; /* first of all */
}

BW_INLINE void sense_addr(__u8 *to, __be32 v4)
{
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &v4, 4);
}

BW_INLINE void sense_identify(struct sense_endpoint *e, const struct sock *sk, int side)
{
	struct sense_record *r = &e->rec;

	r->local_port = sk->__sk_common.skc_num;
	r->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	r->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	r->flags = side | (late_send ? SENSE_F_LATE_SEND : 0);
	if (sk->__sk_common.skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&r->local_addr, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8);
		BPF_CORE_READ_INTO(&r->remote_addr, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
	} else {
		sense_addr(r->local_addr, sk->__sk_common.skc_rcv_saddr);
		sense_addr(r->remote_addr, sk->__sk_common.skc_daddr);
	}
}

/* Whether a program of a sockmap may take what is sent or received elsewhere. */
BW_INLINE bool sense_in_sockmap(const struct sock *sk)
{
	__u64 user = (__u64)sk->sk_user_data;
	const struct sk_psock *psock = (const void *)(user & ~SENSE_USER_DATA_FLAGS);

	if (!(user & SENSE_USER_DATA_PSOCK) || !bpf_core_type_exists(struct sk_psock_progs))
		return false;
	return BPF_CORE_READ(psock, progs.msg_parser) || BPF_CORE_READ(psock, progs.stream_verdict) ||
	       BPF_CORE_READ(psock, progs.skb_verdict);
}

/* Whether sends go to the stack by do_tcp_sendpages(), as those of the kernel's TLS did before Linux 6.5. */
BW_INLINE bool sense_sends_pages(const struct tcp_sock *tp)
{
	const struct tcp_ulp_ops *ulp;
	char name[4] = {};

	if (late_send || !bpf_core_field_exists(struct proto___before_6_5, sendpage))
		return false;
	ulp = BPF_CORE_READ(tp, inet_conn.icsk_ulp_ops);
	return ulp && !bpf_core_read(name, sizeof(name), &ulp->name) && name[0] == 't' &&
	       name[1] == 'l' && name[2] == 's' && !name[3];
}

/* What data go past which hooks: docs/research/kernel.md, "What the hooks do not see". */
BW_INLINE enum sense_bypass sense_bypass(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp)
		return SENSE_BYPASS_MPTCP;
	/* where SMC gave up, its TCP socket has taken over the application's file */
	if (bpf_core_field_exists(tp->syn_smc) && BPF_CORE_READ_BITFIELD_PROBED(tp, syn_smc) &&
	    sk->sk_socket && !BPF_CORE_READ(sk, sk_socket, file))
		return SENSE_BYPASS_SMC;
	if (!sense_data_segs(tp) && sense_in_sockmap(sk))
		return SENSE_BYPASS_SOCKMAP;
	return sense_sends_pages(tp) ? SENSE_BYPASS_KTLS : SENSE_BYPASS_NONE;
}

#define SENSE_CHRONO_WINDOW 2 /* TCP_CHRONO_RWND_LIMITED */

/* As tcp_get_info_chrono_stats() tells it. */
BW_INLINE __u32 sense_window_full_us(const struct tcp_sock *tp)
{
	__u32 jiffies = tp->chrono_stat[SENSE_CHRONO_WINDOW - 1];

	if (BPF_CORE_READ_BITFIELD_PROBED(tp, chrono_type) == SENSE_CHRONO_WINDOW)
		jiffies += (__u32)bpf_jiffies64() - tp->chrono_start;
	return jiffies * jiffy_us;
}

BW_INLINE void sense_sock_info(struct sense_endpoint *e, const struct tcp_sock *tp)
{
	enum sense_bypass bypass = sense_bypass(tp);
	struct sense_record *r = &e->rec;

	/*
	 * With arrivals still in the log the counters stand where the last drain left them. Else they
	 * are current, but that nobody may have noticed the last ACK leave.
	 */
	r->info.now = e->logged != e->tail ? r->last : paused ? epoch_ended : bpf_ktime_get_ns();
	r->info.ack_left = e->logged != e->tail || bw_after(e->rcv, tp->rcv_wup) ?
				   0 :
				   sense_ack_left(e, r->info.now, tp->tcp_wstamp_ns);
	r->info.bytes = tp->bytes_acked + tp->bytes_received;
	r->info.bytes_sent = tp->bytes_acked;
	r->info.segs = sense_data_segs(tp);
	r->info.segs_sent = tp->data_segs_out;
	r->info.outstanding = tp->write_seq - tp->snd_una;
	r->info.unread = tp->rcv_nxt - tp->copied_seq;
	r->info.srtt_us = tp->srtt_us >> 3;
	r->info.rtt_min_us = tp->rtt_min.s[0].v;
	r->info.nonagle = tp->nonagle;
	r->info.state = (sense_backlog(tp->write_seq, tp->snd_nxt, sense_nagled(tp)) == SENSE_BACKLOG_HELD) |
			(tp->rcv_nxt != tp->rcv_wup) << 1 | !!e->ack_soon << 2;
	r->acks = tp->segs_out - tp->data_segs_out;
	r->info.mss = tp->mss_cache;
	r->info.resent = tp->total_retrans;
	r->info.window_full_us = sense_window_full_us(tp);
	r->info.oldest = r->info.under_way = r->info.backlog = 0;
	/* one that closes has left its sockmap already */
	if (bypass || !(r->flags & SENSE_F_CLOSED))
		r->info.bypass = bypass;
}

#endif
