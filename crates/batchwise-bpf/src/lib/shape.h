/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What an epoch says when it closes: which of its modes are latency, and which of those are pauses
 * between batches (docs/research/passive.md). Helper-free.
 */
#ifndef FLOW_SHAPE_H
#define FLOW_SHAPE_H

#include "modes.h"

#define FLOW_VALLEY 16	/* a ratio of 4 between neighbouring modes separates bursts from pauses */
#define FLOW_THINK 32	/* a ratio of 16: above it lies what is not latency */
#define FLOW_SUPPORT 8	/* fewer than one in 8 gaps that stand apart are not the pauses */
#define FLOW_IDLE_VALLEY 8 /* a ratio of 2: gaps over idle_ns that stand apart */

/* What several modes hold together. */
struct flow_span {
	__u64 sum; /* units */
	__u64 count;
	__u64 marked;
};

/* Adds mode i where c is 1. */
BW_INLINE void flow_span_add(struct flow_span *s, const struct flow_gaps *g, __u32 i, __u64 c)
{
	s->sum += g->mode[i].sum & -c;
	s->count += g->mode[i].count & -c;
	s->marked += g->mode[i].marked & -c;
}

/* How far mode i lies above its lower neighbour, in codes; meaningless where there is no mode i. */
BW_INLINE __u64 flow_valley(__u64 lo, __u64 hi, __u32 i)
{
	return i ? (flow_byte(lo, i) - flow_byte(hi, i - 1)) & 0xff : 0;
}

/* Which part of the gaps is latency, and which of them are the pauses. */
struct flow_shape {
	__u64 pauses;  /* the first mode of pauses */
	__u64 end;     /* the first mode beyond latency */
	__u64 counted; /* no mark helps: all gaps count as marked */
	__u32 trust;   /* 0 to 1000 */
};

/*
 * From idle_ns on, gaps that stand apart are timeouts or idle time. Bursts lie below a valley. With
 * acknowledgments, gaps inside a burst are those that acknowledge nothing new: the highest valley
 * counts below which most gaps are such, and few marked ones lie (responses that came one soon after
 * the other). Without, the lowest valley with enough gaps above it does. Few gaps far above the
 * pauses are think time.
 */
BW_INLINE void flow_gaps_shape(const struct flow_gaps *g, const struct flow_gaps_params *p,
			       struct flow_shape *s)
{
	__u64 lo = flow_row_load(g->lo), hi = flow_row_load(g->hi);
	__u64 idle = flow_gap_code(flow_gap_units(p->idle_ns)), acks = g->flags & FLOW_GAPS_ACKS;
	__u64 total, upto_end, end = 0, valley = 0;
	__u32 weight[FLOW_MODES];
	struct flow_span all = {}, below = {};

	for (__u32 i = 0; i < FLOW_MODES; i++)
		end += bw_less(flow_byte(lo, i), FLOW_NO_MODE);
	for (__u32 i = FLOW_MODES; i-- > 0;) {
		__u64 apart = i ? bw_less(flow_valley(lo, hi, i), FLOW_IDLE_VALLEY) ^ 1 : 1;

		end = flow_select(bw_less(i, end) & apart & (bw_less(flow_byte(lo, i), idle) ^ 1), i,
				  end);
	}
	for (__u32 i = 0; i < FLOW_MODES; i++)
		flow_span_add(&all, g, i, bw_less(i, end));
	s->counted = (acks ^ 1) & bw_less(all.marked, 1);
	total = flow_select(s->counted, all.count, all.marked);
	for (__u32 i = 0; i < FLOW_MODES; i++) {
		__u64 under = flow_select(s->counted, below.count, below.marked);
		__u64 over = total - (under & -bw_less(i, end));
		__u64 burst = bw_less(under * 2, below.count) & bw_less(under * 2, over);
		__u64 lowest = bw_less(valley, 1) & (bw_less(over * FLOW_SUPPORT, total) ^ 1);
		__u64 deep = bw_less(flow_valley(lo, hi, i), FLOW_VALLEY) ^ 1;

		valley = flow_select(bw_less(i, end) & deep & flow_select(acks, burst, lowest), i,
				     valley);
		weight[i] = under;
		flow_span_add(&below, g, i, 1);
	}
	s->pauses = valley;
	upto_end = total;
	for (__u32 i = FLOW_MODES; i-- > 0;) {
		__u64 far = bw_less(flow_valley(lo, hi, i), FLOW_THINK) ^ 1;
		__u64 inside = bw_less(i, end) & bw_less(valley, i);
		__u64 rest = (upto_end - weight[i]) & -inside;
		__u64 think = inside & far & bw_less(rest * FLOW_SUPPORT, total);

		end = flow_select(think, i, end);
		upto_end = flow_select(think, weight[i], upto_end);
	}
	s->end = end;
	s->trust = flow_select(s->counted, 400,
			       flow_select(acks, 950, flow_select(bw_less(0, valley), 850, 700)));
}

BW_INLINE void flow_gaps_estimate(const struct flow_gaps *g, const struct flow_gaps_params *p,
				  struct flow_estimate *out)
{
	struct flow_span all = {}, latency = {}, pauses = {};
	struct flow_shape s = { .pauses = 1, .end = FLOW_MODES, .trust = 500 };
	__u64 n;

	__builtin_memset(out, 0, sizeof(*out));
	if (g->flags & FLOW_GAPS_FLIGHT) {
		out->idle = g->idle;
		out->gaps = g->flight.gaps + g->resent;
		flow_flight_estimate(&g->flight, out);
		if (!out->batches && g->resent + out->idle)
			out->flags = FLOW_EST_STALLED;
		return;
	}
	if (p->algorithm != FLOW_GAPS_FIXED)
		flow_gaps_shape(g, p, &s);
	for (__u32 i = 0; i < FLOW_MODES; i++) {
		__u64 inside = bw_less(i, s.end);

		flow_span_add(&all, g, i, 1);
		flow_span_add(&latency, g, i, inside);
		flow_span_add(&pauses, g, i, inside & (bw_less(i, s.pauses) ^ 1));
	}
	out->gaps = all.count + g->discarded + g->idle + g->resent;
	out->idle = g->idle + all.count - latency.count;
	n = flow_select(s.counted, pauses.count, pauses.marked);
	if (!n) {
		if (g->resent + out->idle)
			out->flags = FLOW_EST_STALLED;
		return;
	}
	out->batches = n;
	out->latency = (latency.sum << FLOW_GAP_SHIFT) / n;
	out->ibg = (pauses.sum << FLOW_GAP_SHIFT) / pauses.count;
	/* n / (n + 3), and what had no room */
	out->confidence = s.trust * n / (n + 3) * all.count / (all.count + g->discarded);
}

#endif
