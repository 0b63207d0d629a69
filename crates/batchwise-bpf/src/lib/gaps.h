/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Latency from the gaps between the packets that a client sends (docs/research/passive.md): a flow's open
 * epoch and what a packet does to it; modes.h and shape.h have the rest of it. Helper-free: compiled
 * into the BPF programs and, for the tests, on the host. The reference is batchwise-core, passive/.
 */
#ifndef FLOW_GAPS_H
#define FLOW_GAPS_H

#include "shape.h"

#define FLOW_IDLE_SHIFT 3

/* What is remembered of a TCP flow from packet to packet. */
struct flow_stream {
	__u32 next_seq; /* after the highest payload seen */
	__u32 ack;	/* the highest seen */
	__u32 acked_at; /* when a pure ACK brought it, 2^FLOW_GAP_SHIFT ns after flow_gaps.last; 0: none since */
};

/* IP length from which a largest packet may be full-sized: above the 1200 B of QUIC's smallest path. */
#define FLOW_FULL_UNITS 18

/*
 * Whether a packet of this IP length is full-sized: the largest seen, and not small. What follows
 * one at once is not triggered by a response (the paper's second heuristic, section 3.4).
 */
BW_INLINE int flow_gaps_full_sized(struct flow_gaps *g, __u32 ip_len)
{
	__u32 units = ip_len / 64;

	if (units > 0xff)
		units = 0xff;
	if (units > g->largest)
		g->largest = units;
	return units >= FLOW_FULL_UNITS && units == g->largest;
}

/* Whether requests in flight are kept in the next epoch, see flow_are_bursts(). */
BW_INLINE void flow_gaps_choose(struct flow_gaps *g)
{
	__u32 all;

	if (g->flags & FLOW_GAPS_FLIGHT) {
		if (g->flight.begun < FLOW_ENOUGH || !flow_are_bursts(g->flight.alone, g->flight.begun))
			return;
	} else {
		if (!(g->flags & FLOW_GAPS_BURSTS))
			return;
		all = flow_gaps_count(g);
		if (all < FLOW_ENOUGH || flow_are_bursts(all - flow_gaps_marked(g), all))
			return;
		__builtin_memset(&g->flight, 0, sizeof(g->flight));
	}
	g->flags ^= FLOW_GAPS_FLIGHT | FLOW_GAPS_BURSTS;
}

/* Begins an epoch; keeps when the last packet was, and what is known of the flow. */
BW_INLINE void flow_gaps_open(struct flow_gaps *g, __u64 now)
{
	flow_gaps_choose(g);
	g->start = now;
	if (g->flags & FLOW_GAPS_FLIGHT) {
		flow_flight_open(&g->flight);
	} else {
		for (int i = 0; i < FLOW_MODES; i++) {
			g->mode[i].sum = 0;
			g->mode[i].count = 0;
			g->mode[i].marked = 0;
		}
		flow_row_store(g->lo, ~0ULL);
		flow_row_store(g->hi, ~0ULL);
	}
	g->discarded = 0;
	g->idle = 0;
	g->resent = 0;
	g->flags &= ~FLOW_GAPS_FULL;
}

/* Whether the epoch is to be closed before a packet that counts is added to the next one. */
BW_INLINE int flow_gaps_due(const struct flow_gaps *g, const struct flow_gaps_params *p, __u64 now)
{
	__u64 age = now - g->start;

	if (g->flags & FLOW_GAPS_FULL)
		return 1;
	if (now <= g->start || age < p->epoch_ns)
		return 0;
	return age >= p->max_ns || (g->flags & FLOW_GAPS_FLIGHT ?
					    g->flight.count + g->flight.pure_acks :
					    flow_gaps_marked(g)) >= p->min_gaps;
}

/*
 * A packet that counts. `marked`: the gap before it may be a pause between batches: the packet before
 * was not full-sized and, where the flow has FLOW_GAPS_ACKS, this one acknowledges more than that.
 */
BW_INLINE void flow_gaps_packet(struct flow_gaps *g, const struct flow_gaps_params *p, __u64 now,
				int marked, int resent)
{
	__u64 last = g->last, gap = now - last;
	__u32 units, code, upto;

	if (!last) {
		g->last = now;
		return;
	}
	if (now < last) /* from another CPU: time does not step back */
		gap = 0;
	else
		g->last = now;
	if (resent) {
		flow_gaps_tally(g, &g->resent);
		return;
	}
	if (gap >> FLOW_IDLE_SHIFT >= p->idle_ns) {
		flow_gaps_tally(g, &g->idle);
		return;
	}
	units = flow_gap_units(gap);
	if (p->algorithm == FLOW_GAPS_FIXED) {
		flow_gaps_fixed(g, p, units);
		return;
	}
	code = flow_gap_code(units);
	upto = flow_modes_upto(flow_row_load(g->lo), code);
	if (upto && g->hi[(upto - 1) & (FLOW_MODES - 1)] >= code)
		upto--;
	else
		upto = flow_modes_place_apart(g, code, upto);
	flow_mode_add(g, &g->mode[upto & (FLOW_MODES - 1)], units, marked);
}

/*
 * All responses had come at `at`, and the client sends only `now`: in between it thought, which is not
 * latency. The ACK that told may itself be a delayed one, so a gap that is idle anyway stays so.
 */
BW_INLINE void flow_gaps_answered(struct flow_gaps *g, const struct flow_gaps_params *p, __u64 now,
				  __u64 at)
{
	if (g->last <= at && at <= now && now - g->last < p->idle_ns)
		g->last += now - at;
}

BW_INLINE void flow_gaps_after(struct flow_gaps *g, __u32 ip_len)
{
	if (flow_gaps_full_sized(g, ip_len))
		g->flags |= FLOW_GAPS_AFTER_FULL;
	else
		g->flags &= ~FLOW_GAPS_AFTER_FULL;
}

/* A packet with payload that is seen for the first time, where requests in flight are kept. */
BW_INLINE void flow_gaps_in_flight(struct flow_gaps *g, const struct flow_gaps_params *p, __u64 now,
				   enum flow_cause cause, __u64 at)
{
	/* what a response released is a request, whatever its size */
	int begins = !(g->flags & FLOW_GAPS_AFTER_FULL) || cause != FLOW_NO_NEWS;
	struct flow_flight *f = &g->flight;
	__u64 last = g->last;

	if (now < last)
		now = last; /* clocks of CPUs differ */
	g->last = now;
	f->gaps += !!last;
	if (cause != FLOW_NEWS && last && (now - last) >> FLOW_IDLE_SHIFT >= p->idle_ns) {
		flow_gaps_tally(g, &g->idle);
		if (cause == FLOW_NO_NEWS)
			flow_flight_drained(f);
	}
	flow_flight_packet(f, now, last, cause, at, begins);
}

/* A pure ACK: it does not count, but says when a response came. */
BW_INLINE void flow_gaps_tcp_ack(const struct flow_gaps *g, struct flow_stream *s, __u64 now, __u32 ack)
{
	__u32 units;

	if (!g->last || !bw_after(ack, s->ack))
		return;
	s->ack = ack;
	units = now > g->last ? flow_gap_units(now - g->last) : 0;
	s->acked_at = units ? units : 1;
}

/*
 * A retransmission, where requests in flight are kept. It says of responses what a pure ACK does; when
 * one was told of, the time of that is relative to `last`.
 */
BW_INLINE void flow_gaps_resent(struct flow_gaps *g, struct flow_stream *s, __u64 now, __u32 ack)
{
	if (s->acked_at || bw_after(ack, s->ack))
		flow_gaps_tcp_ack(g, s, now, ack);
	else if (now > g->last)
		g->last = now;
	flow_gaps_tally(g, &g->resent);
}

/*
 * A TCP segment with payload. A request that a response triggered acknowledges that response: a gap
 * that ends without news of the server is no pause. When a pure ACK has already told all that the
 * segment acknowledges, the responses were complete by then.
 */
BW_INLINE void flow_gaps_tcp(struct flow_gaps *g, struct flow_stream *s, const struct flow_gaps_params *p,
			     __u64 now, __u32 seq, __u32 len, __u32 ack, __u32 ip_len)
{
	int first = !g->last, acked = s->acked_at != 0, news = bw_after(ack, s->ack);
	__u64 at = g->last + ((__u64)s->acked_at << FLOW_GAP_SHIFT);
	__u32 end = seq + len;
	int behind = !first && !bw_after(end, s->next_seq);
	enum flow_cause cause;

	if (p->algorithm == FLOW_GAPS_AUTO && !(g->flags & FLOW_GAPS_ACKS)) {
		__builtin_memset(&g->flight, 0, sizeof(g->flight));
		g->flags |= FLOW_GAPS_FLIGHT;
	}
	g->flags |= FLOW_GAPS_ACKS;
	if (g->flags & FLOW_GAPS_FLIGHT) {
		if (behind && flow_flight_resent(&g->flight, len)) {
			flow_gaps_resent(g, s, now, ack);
			return;
		}
		if (!first && bw_after(seq, s->next_seq))
			flow_flight_jumped(&g->flight, seq - s->next_seq);
		cause = first ? FLOW_NO_NEWS : news ? FLOW_NEWS : acked ? FLOW_PURE_ACK : FLOW_NO_NEWS;
		flow_gaps_in_flight(g, p, now, cause, at);
	} else {
		if (acked && !news && !first)
			flow_gaps_answered(g, p, now, at);
		flow_gaps_packet(g, p, now, first || news || acked, behind);
	}
	flow_gaps_after(g, ip_len);
	if (first || !behind)
		s->next_seq = end;
	if (first || news)
		s->ack = ack;
	s->acked_at = 0;
}

/* A datagram, or any packet of which only the length is known. */
BW_INLINE void flow_gaps_datagram(struct flow_gaps *g, const struct flow_gaps_params *p, __u64 now,
				  __u32 ip_len)
{
	flow_gaps_packet(g, p, now, !(g->flags & FLOW_GAPS_AFTER_FULL), 0);
	flow_gaps_after(g, ip_len);
}

#endif
