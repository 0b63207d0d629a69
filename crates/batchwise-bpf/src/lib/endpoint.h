/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What each event on a TCP socket does to its queues. The caller holds the socket's lock and
 * passes what it read from the socket and the segment; nothing here touches the kernel.
 */
#ifndef SENSE_ENDPOINT_H
#define SENSE_ENDPOINT_H

#include "asks.h"
#include "queue.h"
#include "turns.h"
#include "unsent.h"
#include "wire.h"

/* sense_record.flags */
enum sense_record_flag {
	SENSE_F_SERVER = 0x1,     /* it was accepted */
	SENSE_F_BIRTH = 0x2,      /* counted from the connection's first byte */
	SENSE_F_AGREED = 0x8,     /* the peer speaks the exchange */
	SENSE_F_LATE_SEND = 0x10, /* sends are seen only after the call (no tcp_sendmsg_locked) */
	SENSE_F_CLOSED = 0x20,    /* the connection is gone: this is its last record */
	SENSE_F_HINTED = 0x40,    /* the peer's application itself counts: it needs no queue of ours */
};

/* What takes a connection's data past the hooks. */
enum sense_bypass {
	SENSE_BYPASS_NONE,
	SENSE_BYPASS_MPTCP,
	SENSE_BYPASS_SMC,
	SENSE_BYPASS_SOCKMAP,
	SENSE_BYPASS_KTLS,
};

/* How a socket is now. */
enum sense_sock_state {
	SENSE_SOCK_HELD = 1, /* Nagle's algorithm holds something */
	SENSE_SOCK_ACK_DUE = 2, /* what was received is not acknowledged */
	SENSE_SOCK_ACK_SOON = 4, /* the agent has cut short how long acknowledgments wait */
};

/* What the kernel itself keeps of a socket, read with the record. */
struct sense_sock_info {
	__u64 now;	/* ns, CLOCK_MONOTONIC: the counters are as of then */
	__u64 ack_left; /* ns: all that `ackdelay` holds was acknowledged then; 0: not all was */
	__u64 bytes; /* acknowledged by the peer, and received */
	__u64 bytes_sent; /* of them, acknowledged by the peer */
	__u64 segs; /* with data, sent and received */
	__u64 segs_sent; /* of them, sent */
	__u64 segs_begin; /* `segs` when the epoch's first event came */
	__u32 outstanding; /* bytes handed over, not yet acknowledged */
	__u32 srtt_us;
	__u32 rtt_min_us;
	__u32 unread; /* bytes received and not yet read */
	__u8 nonagle; /* tp->nonagle: TCP_NAGLE_OFF, TCP_NAGLE_CORK */
	__u8 state; /* enum sense_sock_state */
	__u8 backlog; /* enum sense_backlog, if nothing is unknown since the last event */
	__u8 bypass; /* enum sense_bypass */
	__u16 mss; /* bytes of a full segment */
	__u16 under_way; /* requests */
	__u64 oldest; /* ns: when the oldest of them began; 0: none is known */
	__u32 resent; /* segments that were sent again, free-running */
	__u32 window_full_us; /* for how long the peer's window had no room for what waits, free-running */
};

/* One connection as the agent sees it: identity, then counters. */
struct sense_record {
	__u32 version; /* odd while being written; see sense_version_bump() */
	__u32 flags;
	__u64 last; /* ns, of the last event that is counted */
	struct sense_queue q[SENSE_UNITS][SENSE_QUEUES];
	struct sense_peer_queue peer[SENSE_UNITS][SENSE_QUEUES];
	__u32 options_sent;
	__u32 options_heard;
	__u32 options_refused; /* malformed, or not newer than the last */
	__u32 overlaps; /* requests read while an earlier one had no response yet */
	__u32 unmatched; /* requests that were one too many under way */
	__u32 guessed; /* requests whose answers were not there when they were taken to be answered */
	struct sense_turns turns;
	struct sense_turn turn; /* that goes on */
	struct sense_unsent unsent;
	struct sense_sock_info info;
	__u64 peer_open_until; /* ns, CLOCK_MONOTONIC: the peer counts until then, and wants our queues */
	struct sense_peer_queue peer_hint; /* requests as the peer's application knows them */
	__u32 epoch; /* when counting last began, see members.h */
	__u16 app_setting_off; /* the application asked for TCP_NODELAY */
	__u16 acks; /* segments without data that were sent, free-running */
	__u64 cookie;
	__u64 born; /* ns, CLOCK_MONOTONIC */
	__u8 local_addr[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
};

#define SENSE_LOG 16 /* a power of two */
#define SENSE_LONG_AGO 0xffffffffU

/* A segment that arrived, as the socket's state was before it was processed. */
struct sense_arrival {
	__u64 time;	/* ns */
	__u32 number; /* counts arrivals from 1: tells the reader that the entry is new */
	__u32 since_tx; /* 2^10 ns since tp->tcp_wstamp_ns, rounded up; SENSE_LONG_AGO: 73 min and more */
	__u32 seq;
	__u32 ack;
	__u32 rcv_wup;	/* tp->rcv_wup */
	__u32 extent; /* payload length, segments, backlog, PSH: see sense_arrival_extent() */
};

/*
 * A socket's storage. Segments often arrive on one CPU while the application runs on another, and
 * a cache line that both touch costs more than all the arithmetic. So arrivals are only logged, by
 * stores to lines that the logging side never loads, and worked off by the hooks in process
 * context. Parts begin on 128-byte boundaries, since hardware prefetches lines in pairs (the
 * kernel puts 72 bytes before us).
 */
struct sense_endpoint {
	/* every look-up reads this line: hardly ever written */
	__u32 told; /* the record's version that the agent had last; 0: none, or it is to have it again */
	__u32 censored; /* sense_dump's alone: the epoch whose unfinished requests are in the histogram */
	__u32 tails; /* the service's histograms, as `services` of sense/members.h says; 0: none */
	__u32 ack_soon; /* whether the agent wants acknowledgments sooner than the kernel sends them, and who sees to it */
	__u32 next_option; /* which queue the exchange sends next */
	__u32 silent; /* the callback before each segment is off while nothing is counted */
	__u32 reserved[2];
	__u64 option_sent; /* ns; at most one in `exchange_period_ns` */
	__u64 state_sent; /* ns */
	__u64 hint_advertised; /* ns: `time` of the hint that was advertised last */

	/* the logging side's alone */
	__u64 logged_at;
	__u32 logged; /* arrivals, free-running */
	__u32 logged_epoch; /* as sense_record.epoch */
	__u32 reserved_logged[28];

	struct sense_arrival log[SENSE_LOG];

	/* process context's alone */
	__u32 tail;  /* arrivals worked off */
	__u32 una;   /* the peer has acknowledged up to here */
	__u32 wend;  /* the application has handed over up to here */
	__u32 rcv;   /* received in order up to here */
	__u32 read;  /* the application has read up to here */
	__u32 acked; /* we have acknowledged up to here */
	struct sense_record rec;
	struct sense_marks out; /* send calls not yet acknowledged */
	struct sense_marks in_read; /* received messages not yet read */
	struct sense_marks in_ack; /* received messages not yet acknowledged */
	struct sense_mark out_marks[SENSE_MARKS];
	struct sense_mark in_read_marks[SENSE_MARKS];
	struct sense_mark in_ack_marks[SENSE_ACK_MARKS];
	struct sense_asks asks;
};

/* With the kernel's 72 bytes a page: the next size that it has is twice as large. */
_Static_assert(sizeof(struct sense_endpoint) <= 4096 - 72, "a socket's storage is longer than a page");

/*
 * TCP_DELACK_MIN is HZ/25 and TCP_BPF_DELACK_MAX at least 2 jiffies: an acknowledgment that leaves
 * sooner than this after an event was sent by that event, later ones by the delayed-ACK timer.
 */
#define SENSE_DELACK_FLOOR_NS 4000000ULL
#define SENSE_ACK_SOONER 4

/* The socket's own idea of its streams, read at the event. */
struct sense_sock_view {
	__u32 write_seq;  /* tp->write_seq */
	__u32 rcv_nxt;	  /* tp->rcv_nxt */
	__u32 copied_seq; /* tp->copied_seq */
	__u32 rcv_wup;	  /* tp->rcv_wup: rcv_nxt when the last ACK left */
	__u64 last_tx;	  /* tp->tcp_wstamp_ns: when the last segment left */
	__u32 snd_nxt;	  /* tp->snd_nxt */
	__u32 nagled;	  /* as sense_backlog() wants it */
};

BW_INLINE __u32 sense_arrival_extent(__u32 len, __u32 segs, enum sense_backlog backlog, int push)
{
	if (segs > 0x1ff)
		segs = 0x1ff;
	return (len & 0xfffff) << 12 | segs << 3 | backlog << 1 | !!push;
}

/* What to keep: a bit a unit, and one for `ackdelay`, which only a peer needs; folded where constant. */
#define SENSE_WANT(units, u) ((units) & (1U << (u)))
#define SENSE_ACKDELAYS SENSE_UNITS

BW_INLINE struct sense_queue *sense_q(struct sense_endpoint *e, int unit, int id)
{
	return &e->rec.q[unit][id];
}

BW_INLINE void sense_q_enter(struct sense_endpoint *e, __u32 units, int id, __u64 now, __u32 bytes,
			     __u32 calls, __u32 segs)
{
	if (SENSE_WANT(units, SENSE_BYTES) && bytes)
		sense_enter(sense_q(e, SENSE_BYTES, id), now, bytes);
	if (SENSE_WANT(units, SENSE_CALLS) && calls)
		sense_enter(sense_q(e, SENSE_CALLS, id), now, calls);
	if (SENSE_WANT(units, SENSE_SEGS) && segs)
		sense_enter(sense_q(e, SENSE_SEGS, id), now, segs);
}

BW_INLINE void sense_q_leave(struct sense_endpoint *e, __u32 units, int id, __u64 now, __u32 bytes,
			     __u32 calls, __u32 segs)
{
	if (SENSE_WANT(units, SENSE_BYTES) && bytes)
		sense_leave(sense_q(e, SENSE_BYTES, id), now, bytes);
	if (SENSE_WANT(units, SENSE_CALLS) && calls)
		sense_leave(sense_q(e, SENSE_CALLS, id), now, calls);
	if (SENSE_WANT(units, SENSE_SEGS) && segs)
		sense_leave(sense_q(e, SENSE_SEGS, id), now, segs);
}

/* Whether nothing was sent, received or read since the last event: what is under way still is. */
BW_INLINE int sense_is_still(const struct sense_endpoint *e, const struct sense_sock_view *v)
{
	return e->wend == v->write_seq && e->rcv == v->rcv_nxt && e->read == v->copied_seq;
}

/* Whether nothing has happened at all since then: what was queued still is. */
BW_INLINE int sense_is_unchanged(const struct sense_endpoint *e, const struct sense_sock_view *v,
				 __u32 snd_una)
{
	return sense_is_still(e, v) && e->una == snd_una && e->tail == e->logged;
}

/*
 * Begins to count, or again after a pause: totals and integrals go on from where they were; arrivals
 * that are still in the log are from before the pause and do not count. What is queued already enters
 * now: one call, as much as is known of it.
 */
BW_INLINE void sense_resync(struct sense_endpoint *e, __u32 units, __u64 now,
			    const struct sense_sock_view *v, __u32 snd_una)
{
	__u32 unacked = v->write_seq - snd_una, unread = v->rcv_nxt - v->copied_seq;

	for (int u = 0; u < SENSE_UNITS; u++) {
		for (int i = 0; i < SENSE_QUEUES; i++) {
			e->rec.q[u][i].time = now;
			e->rec.q[u][i].size = 0;
		}
	}
	e->tail = e->logged;
	e->out.tail = e->out.head;
	e->in_read.tail = e->in_read.head;
	e->in_ack.tail = e->in_ack.head;
	if (!sense_is_still(e, v)) {
		sense_asks_reset(&e->asks, snd_una, v->write_seq);
		sense_turn_reset(&e->rec.turn);
	}
	e->rec.last = now;
	e->una = snd_una;
	e->wend = v->write_seq;
	e->rcv = v->rcv_nxt;
	e->read = v->copied_seq;
	e->acked = v->rcv_nxt;
	if (unacked) {
		sense_q_enter(e, units, SENSE_UNACKED, now, unacked, 1, 1);
		sense_mark_push(&e->out, e->out_marks, SENSE_MARKS, e->wend, 1, 1);
	}
	if (unread) {
		sense_q_enter(e, units, SENSE_UNREAD, now, unread, 1, 1);
		sense_mark_push(&e->in_read, e->in_read_marks, SENSE_MARKS, e->rcv, 1, 1);
	}
}

/* Goes on at `since` after a pause in which nothing happened: only the time passes over. */
BW_INLINE void sense_resume(struct sense_endpoint *e, __u64 since)
{
	e->rec.last = since;
	for (int u = 0; u < SENSE_UNITS; u++)
		for (int i = 0; i < SENSE_QUEUES; i++)
			e->rec.q[u][i].time = since;
}

/* A message arrived whole: a server's request, or a client's response. */
BW_INLINE void sense_match_arrival(struct sense_endpoint *e, __u64 now, __u32 end, __u32 ack)
{
	__u32 before = e->asks.mid;

	if (e->rec.flags & SENSE_F_SERVER) {
		sense_asks_begin(&e->asks, end, now, &e->rec.unmatched);
		return;
	}
	sense_asks_answer(&e->asks, end, ack, &e->rec.guessed);
	if (e->asks.mid == before && !e->asks.behind)
		e->rec.turns.strays++;
}

/*
 * In-order bytes up to `end` arrived with `ack`, holding `calls` ends of messages in `segs` segments; what was
 * sent before had left at `left`.
 */
BW_INLINE void sense_arrive(struct sense_endpoint *e, __u32 units, __u64 now, __u32 end, __u32 ack,
			    __u32 calls, __u32 segs, __u64 left)
{
	__u32 bytes = end - e->rcv;

	sense_q_enter(e, units, SENSE_UNREAD, now, bytes, calls, segs);
	/* segments that end no message matter only where segments are counted */
	if (calls || SENSE_WANT(units, SENSE_SEGS))
		sense_mark_push(&e->in_read, e->in_read_marks, SENSE_MARKS, end, calls, segs);
	if (SENSE_WANT(units, SENSE_ACKDELAYS)) {
		sense_q_enter(e, units, SENSE_ACKDELAY, now, bytes, calls, segs);
		if (calls || SENSE_WANT(units, SENSE_SEGS))
			sense_mark_push(&e->in_ack, e->in_ack_marks, SENSE_ACK_MARKS, end, calls, segs);
	}
	if (e->rec.flags & SENSE_F_SERVER)
		sense_turn_ask(&e->rec.turn, &e->rec.turns, now, e->rcv, left);
	e->rec.turn.crossed |= bw_after(e->wend, ack);
	e->rcv = end;
	e->asks.bytes += bytes;
	if (calls)
		sense_match_arrival(e, now, end, ack);
}

/* When an ACK left that was noticed only now. */
BW_INLINE __u64 sense_ack_left(const struct sense_endpoint *e, __u64 now, __u64 last_tx)
{
	if (last_tx > now) /* paced: the stamp is when the next segment may leave */
		last_tx = now;
	return last_tx > e->rec.last + SENSE_DELACK_FLOOR_NS ? last_tx : e->rec.last;
}

/* An ACK up to `rcv_wup` left at `left`. */
BW_INLINE void sense_on_ack_left(struct sense_endpoint *e, __u32 units, __u64 left, __u32 rcv_wup)
{
	__u32 calls, segs, upto;

	if (!SENSE_WANT(units, SENSE_ACKDELAYS) || !bw_after(rcv_wup, e->acked))
		return;
	upto = bw_after(rcv_wup, e->rcv) ? e->rcv : rcv_wup; /* FIN */
	sense_mark_pop(&e->in_ack, e->in_ack_marks, SENSE_ACK_MARKS, upto, &calls, &segs);
	sense_q_leave(e, units, SENSE_ACKDELAY, left, upto - e->acked, calls, segs);
	e->acked = upto;
}

/* An ACK may have left since the last event, which has no hook of its own. */
BW_INLINE void sense_settle_ack(struct sense_endpoint *e, __u32 units, __u64 now, __u32 rcv_wup,
				__u64 last_tx)
{
	sense_on_ack_left(e, units, sense_ack_left(e, now, last_tx), rcv_wup);
}

/* The peer has acknowledged up to `ack`. */
BW_INLINE void sense_on_ack(struct sense_endpoint *e, __u32 units, __u64 now, __u32 ack)
{
	__u32 calls, segs;

	if (bw_after(ack, e->wend)) /* sent without our seeing it, or a lie: skip it */
		ack = e->wend;
	if (!bw_after(ack, e->una))
		return;
	sense_mark_pop(&e->out, e->out_marks, SENSE_MARKS, ack, &calls, &segs);
	sense_q_leave(e, units, SENSE_UNACKED, now, ack - e->una, calls, segs);
	e->una = ack;
}

/* An event came, and this waited to leave since the last one. */
BW_INLINE void sense_pass(struct sense_endpoint *e, __u64 now, enum sense_backlog backlog)
{
	if (now > e->rec.last)
		sense_unsent_add(&e->rec.unsent, backlog, now - e->rec.last);
	e->rec.last = now;
}

/* When a segment had left last, ns. */
BW_INLINE __u64 sense_seen_last_tx(const struct sense_arrival *s)
{
	return s->since_tx == SENSE_LONG_AGO ? 0 : s->time - ((__u64)s->since_tx << 10);
}

/*
 * Whether the message that this end hears has begun and is not over, as far as it knows: a request at a server, a
 * response at a client.
 */
BW_INLINE int sense_is_hearing(const struct sense_endpoint *e)
{
	const struct sense_turn *t = &e->rec.turn;

	return t->began && !t->answered == !!(e->rec.flags & SENSE_F_SERVER);
}

/*
 * A message goes on, with data that left once the timer for delayed acknowledgments had sent one at `left`, after which
 * they came much sooner than that took: the peer's Nagle had waited for it.
 */
BW_INLINE void sense_hear_held(struct sense_endpoint *e, const struct sense_arrival *s, __u64 left)
{
	if (left > e->rec.last + SENSE_DELACK_FLOOR_NS && s->rcv_wup == e->rcv && s->seq == e->rcv &&
	    s->extent >> 12 && SENSE_ACK_SOONER * (s->time - left) < left - e->rec.last && sense_is_hearing(e))
		e->rec.unsent.acks += left - e->rec.last;
}

/* A segment arrived. */
BW_INLINE void sense_on_segment(struct sense_endpoint *e, __u32 units, const struct sense_arrival *s)
{
	__u32 end = s->seq + (s->extent >> 12);

	sense_hear_held(e, s, sense_seen_last_tx(s));
	sense_settle_ack(e, units, s->time, s->rcv_wup, sense_seen_last_tx(s));
	sense_pass(e, s->time, s->extent >> 1 & 3);
	sense_on_ack(e, units, s->time, s->ack);
	if (!bw_after(s->seq, e->rcv) && bw_after(end, e->rcv))
		sense_arrive(e, units, s->time, end, s->ack, s->extent & 1, s->extent >> 3 & 0x1ff,
			     sense_seen_last_tx(s));
}

/* Whether an arrival is logged that was not worked off. */
BW_INLINE int sense_is_logged(const struct sense_endpoint *e)
{
	return e->log[e->tail & (SENSE_LOG - 1)].number == e->tail + 1;
}

/* Works it off. */
BW_INLINE void sense_drain_next(struct sense_endpoint *e, __u32 units)
{
	sense_on_segment(e, units, &e->log[e->tail & (SENSE_LOG - 1)]);
	e->tail++;
}

/* Logs an arrival: only stores to the log. */
BW_INLINE void sense_log(struct sense_endpoint *e, __u64 now, __u64 last_tx, __u32 seq, __u32 ack,
			 __u32 rcv_wup, __u32 extent)
{
	__u32 n = e->logged;
	struct sense_arrival *s = &e->log[n & (SENSE_LOG - 1)];
	__u64 since_tx = last_tx < now ? (now - last_tx + 0x3ff) >> 10 : 0; /* no later than it was */

	s->time = now;
	s->since_tx = since_tx < SENSE_LONG_AGO ? since_tx : SENSE_LONG_AGO;
	s->seq = seq;
	s->ack = ack;
	s->rcv_wup = rcv_wup;
	s->extent = extent;
	s->number = n + 1;
	e->logged = n + 1;
	e->logged_at = now;
}

/*
 * Whether the log must be drained lest it overflow. Looks at the reader's line only once in half a
 * log, so at most SENSE_LOG - 1 arrivals are ever pending.
 */
BW_INLINE int sense_log_is_filling(const struct sense_endpoint *e)
{
	return !(e->logged & (SENSE_LOG / 2 - 1)) && e->logged - e->tail >= SENSE_LOG / 2;
}

/*
 * All that happened since the last hook in process context, once the log is drained. What tcp_probe
 * did not show (the handshake's last segment, out-of-order ones now in order) arrives with the last
 * event.
 */
BW_INLINE void sense_catch_up(struct sense_endpoint *e, __u32 units, __u64 now,
			      const struct sense_sock_view *v)
{
	if (bw_after(v->rcv_nxt, e->rcv))
		sense_arrive(e, units, e->rec.last, v->rcv_nxt, e->wend, 1, 1, 0);
	sense_settle_ack(e, units, now, v->rcv_wup, v->last_tx);
	sense_pass(e, now, sense_backlog(v->write_seq, v->snd_nxt, v->nagled));
}

BW_INLINE void sense_client_sends(struct sense_endpoint *e, __u64 now)
{
	struct sense_turns *all = &e->rec.turns;
	struct sense_turn *t = &e->rec.turn;

	if (all->over == 1 && t->answered && e->rec.flags & SENSE_F_BIRTH)
		sense_turn_look_ahead(t, all, e->wend, e->rcv, e->asks.answered);
	sense_turn_send(t, all, now, e->wend, e->rcv);
}

/*
 * The application hands over bytes up to `end`; `more`: MSG_MORE, the message goes on. The hook may
 * run several times in a call, and a call that took only a part is continued by the next: both show
 * as a write_seq that has not reached the end promised before.
 */
BW_INLINE void sense_on_send(struct sense_endpoint *e, __u32 units, __u64 now,
			     const struct sense_sock_view *v, __u32 end, int more, __u32 mss)
{
	__u32 bytes, segs;

	sense_catch_up(e, units, now, v);
	if (end == e->wend)
		return;
	if (bw_after(e->wend, v->write_seq) && sense_mark_move_last(&e->out, e->out_marks, SENSE_MARKS, end)) {
		struct sense_queue *q = sense_q(e, SENSE_BYTES, SENSE_UNACKED);

		if (SENSE_WANT(units, SENSE_BYTES)) {
			sense_touch(q, now);
			q->size += end - e->wend; /* may shrink: not a departure */
		}
		e->wend = end;
		if (!(e->rec.flags & SENSE_F_SERVER))
			sense_asks_move_last(&e->asks, end);
		return;
	}
	if (!bw_after(end, e->wend))
		return;
	bytes = end - e->wend;
	segs = SENSE_WANT(units, SENSE_SEGS) && mss ? (bytes + mss - 1) / mss : 1;
	sense_q_enter(e, units, SENSE_UNACKED, now, bytes, more ? 0 : 1, segs);
	sense_mark_push(&e->out, e->out_marks, SENSE_MARKS, end, more ? 0 : 1, segs);
	/* there is more to read: another request at a server, the rest of the answer at a client */
	e->rec.turn.crossed |= bw_after(e->rcv, e->read);
	if (e->rec.flags & SENSE_F_SERVER)
		sense_turn_answer(&e->rec.turn, now);
	else
		sense_client_sends(e, now);
	e->wend = end;
	if (!(e->rec.flags & SENSE_F_SERVER) && !more)
		sense_asks_begin(&e->asks, end, now, &e->rec.unmatched);

	/* the response to all that was read: later parts of it find the queue empty */
	if (SENSE_WANT(units, SENSE_BYTES))
		sense_leave(sense_q(e, SENSE_BYTES, SENSE_TURNAROUND), now, ~0U);
	if (SENSE_WANT(units, SENSE_CALLS))
		sense_leave(sense_q(e, SENSE_CALLS, SENSE_TURNAROUND), now, ~0U);
	if (SENSE_WANT(units, SENSE_SEGS))
		sense_leave(sense_q(e, SENSE_SEGS, SENSE_TURNAROUND), now, ~0U);
}

/* The application has read. */
BW_INLINE void sense_on_read(struct sense_endpoint *e, __u32 units, __u64 now,
			     const struct sense_sock_view *v)
{
	__u32 upto, calls, segs, bytes;

	sense_catch_up(e, units, now, v);
	upto = bw_after(v->copied_seq, e->rcv) ? e->rcv : v->copied_seq;
	if (!bw_after(upto, e->read)) /* MSG_PEEK */
		return;
	bytes = upto - e->read;
	if (!(e->rec.flags & SENSE_F_SERVER))
		sense_turn_answer(&e->rec.turn, now);
	sense_mark_pop(&e->in_read, e->in_read_marks, SENSE_MARKS, upto, &calls, &segs);
	sense_q_leave(e, units, SENSE_UNREAD, now, bytes, calls, segs);
	if (calls && e->rec.q[SENSE_CALLS][SENSE_TURNAROUND].size)
		e->rec.overlaps += calls;
	sense_q_enter(e, units, SENSE_TURNAROUND, now, bytes, calls, segs);
	e->read = upto;
}

/* The requests that are under way, and when the oldest of them began. */
BW_INLINE void sense_count_under_way(struct sense_endpoint *e, __u64 now)
{
	struct sense_sock_info *info = &e->rec.info;
	const struct sense_turn *t = &e->rec.turn;
	__u32 bytes = (e->rec.flags & SENSE_F_SERVER ? e->rcv : e->wend) - t->from;

	info->under_way = info->oldest = 0;
	if (t->crossed) { /* each answer is to one of several */
		info->under_way = sense_asks_under_way(&e->asks);
		info->oldest = sense_asks_oldest(&e->asks, now);
	} else if (sense_turn_is_under_way(t, &e->rec.turns, bytes)) {
		info->under_way = 1;
		info->oldest = t->began;
	}
}

/* Whether the oldest request is over once the application has read (client) or sends (server). */
BW_INLINE int sense_is_over(const struct sense_endpoint *e)
{
	const struct sense_asks *a = &e->asks;

	return a->tail != a->mid && (e->rec.flags & SENSE_F_SERVER ||
				     !bw_after(a->ask[a->tail & (SENSE_ASKS - 1)].end, e->read));
}

/* What a read, after sense_on_read(), means for requests: a client's may be over. */
BW_INLINE void sense_match_read(struct sense_endpoint *e, __u64 now, struct sense_hist *h)
{
	if (e->rec.flags & SENSE_F_SERVER)
		sense_asks_take(&e->asks, e->read);
	else
		sense_asks_read_answers(&e->asks, h, e->read, now);
}

/* Likewise a send, after sense_on_send(): a server's are. */
BW_INLINE void sense_match_send(struct sense_endpoint *e, __u64 now, struct sense_hist *h)
{
	if (!(e->rec.flags & SENSE_F_SERVER))
		return;
	e->rec.turns.strays += e->asks.tail == e->asks.mid;
	sense_asks_answered(&e->asks, h, e->read, now);
}

#endif
