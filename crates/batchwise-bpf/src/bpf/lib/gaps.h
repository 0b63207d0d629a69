/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Latency from the gaps between the packets that a client sends (docs/passive.md): a flow's open
 * epoch, what a packet does to it, and what it says when it closes. Helper-free: compiled into the
 * BPF programs and, for the tests, on the host. The reference is batchwise-core, passive/.
 */
#ifndef BW_GAPS_H
#define BW_GAPS_H

#include "flight.h"

#define BW_IDLE_SHIFT 3

/* Lengths as codes: 8 to the octave, so that a difference of codes is a ratio of gaps. */
#define BW_OCTAVE 8
#define BW_NO_MODE 0xff
#define BW_MODE_WIDTH 2	/* gaps up to about 25 % from a mode join it */
#define BW_VALLEY 16	/* a ratio of 4 between neighbouring modes separates bursts from pauses */
#define BW_THINK 32	/* a ratio of 16: above it lies what is not latency */
#define BW_SUPPORT 8	/* fewer than one in 8 gaps that stand apart are not the pauses */
#define BW_IDLE_VALLEY 8 /* a ratio of 2: gaps over idle_ns that stand apart */

/* IP length from which a largest packet may be full-sized: above the 1200 B of QUIC's smallest path. */
#define BW_FULL_UNITS 18

/*
 * Where a choice is not rare, it is arithmetic: the verifier follows each combination of branches, and
 * here there are more than it has patience for.
 */

/* 1 or 0. The compiler is kept from making a branch of it. Both below 2^63. */
BW_INLINE __u64 bw_less(__u64 a, __u64 b)
{
	__u64 d = a - b;

	__asm__ volatile("" : "+r"(d));
	return d >> 63;
}

/* a where c is 1, b where it is 0. */
BW_INLINE __u64 bw_select(__u64 c, __u64 a, __u64 b)
{
	return b ^ ((a ^ b) & -c);
}

/* The code of a gap in units of 2^BW_GAP_SHIFT ns. */
BW_INLINE __u32 bw_gap_code(__u32 u)
{
	__u64 v = u, msb = 0, c;

	if (u < BW_OCTAVE)
		return u;
	c = bw_less(0xffff, v) << 4;
	v >>= c;
	msb += c;
	c = bw_less(0xff, v) << 3;
	v >>= c;
	msb += c;
	c = bw_less(0xf, v) << 2;
	v >>= c;
	msb += c;
	c = bw_less(3, v) << 1;
	v >>= c;
	msb += c + (v >> 1);
	return (msb - 2) << 3 | (u >> (msb - 3) & 7);
}

/* ns to units; what does not fit is beyond all that is kept. */
BW_INLINE __u32 bw_gap_units(__u64 ns)
{
	ns >>= BW_GAP_SHIFT;
	return ns > 0xffffffff ? 0xffffffff : ns;
}

/* Byte i of eight; word-wise, so that rows of codes can be searched and shifted at once. */
BW_INLINE __u32 bw_byte(__u64 row, __u32 i)
{
	return row >> (i * 8) & 0xff;
}

BW_INLINE __u64 bw_row_set(__u64 row, __u32 i, __u32 code)
{
	return (row & ~(0xffULL << (i * 8))) | (__u64)code << (i * 8);
}

BW_INLINE __u64 bw_row_insert(__u64 row, __u32 i, __u32 code)
{
	__u64 below = (1ULL << (i * 8)) - 1;

	return (row & below) | (__u64)code << (i * 8) | (row & ~below) << 8;
}

BW_INLINE __u64 bw_row_remove(__u64 row, __u32 i)
{
	__u64 below = (1ULL << (i * 8)) - 1;

	return (row & below) | (row >> 8 & ~below) | (__u64)BW_NO_MODE << 56;
}

/* Rows are aligned, which memcpy cannot know: it would go byte by byte. */
typedef __u64 __attribute__((may_alias)) bw_row;

BW_INLINE __u64 bw_row_load(const __u8 *row)
{
	return *(const bw_row *)row;
}

BW_INLINE void bw_row_store(__u8 *row, __u64 v)
{
	*(bw_row *)row = v;
}

/*
 * Whether a packet of this IP length is full-sized: the largest seen, and not small. What follows
 * one at once is not triggered by a response (the paper's second heuristic, section 3.4).
 */
BW_INLINE int bw_gaps_full_sized(struct bw_gaps *g, __u32 ip_len)
{
	__u32 units = ip_len / 64;

	if (units > 0xff)
		units = 0xff;
	if (units > g->largest)
		g->largest = units;
	return units >= BW_FULL_UNITS && units == g->largest;
}

BW_INLINE __u32 bw_gaps_marked(const struct bw_gaps *g)
{
	__u32 n = 0;

	for (int i = 0; i < BW_MODES; i++)
		n += g->mode[i].marked;
	return n;
}

BW_INLINE __u32 bw_gaps_count(const struct bw_gaps *g)
{
	__u32 n = 0;

	for (int i = 0; i < BW_MODES; i++)
		n += g->mode[i].count;
	return n;
}

/* Whether requests in flight are kept in the next epoch, see bw_are_bursts(). */
BW_INLINE void bw_gaps_choose(struct bw_gaps *g)
{
	__u32 all;

	if (g->flags & BW_GAPS_FLIGHT) {
		if (g->flight.begun < BW_ENOUGH || !bw_are_bursts(g->flight.alone, g->flight.begun))
			return;
	} else {
		if (!(g->flags & BW_GAPS_BURSTS))
			return;
		all = bw_gaps_count(g);
		if (all < BW_ENOUGH || bw_are_bursts(all - bw_gaps_marked(g), all))
			return;
		__builtin_memset(&g->flight, 0, sizeof(g->flight));
	}
	g->flags ^= BW_GAPS_FLIGHT | BW_GAPS_BURSTS;
}

/* Begins an epoch; keeps when the last packet was, and what is known of the flow. */
BW_INLINE void bw_gaps_open(struct bw_gaps *g, __u64 now)
{
	bw_gaps_choose(g);
	g->start = now;
	if (g->flags & BW_GAPS_FLIGHT) {
		bw_flight_open(&g->flight);
	} else {
		for (int i = 0; i < BW_MODES; i++) {
			g->mode[i].sum = 0;
			g->mode[i].count = 0;
			g->mode[i].marked = 0;
		}
		bw_row_store(g->lo, ~0ULL);
		bw_row_store(g->hi, ~0ULL);
	}
	g->discarded = 0;
	g->idle = 0;
	g->resent = 0;
	g->flags &= ~BW_GAPS_FULL;
}

/* Whether the epoch is to be closed before a packet that counts is added to the next one. */
BW_INLINE int bw_gaps_due(const struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now)
{
	__u64 age = now - g->start;

	if (g->flags & BW_GAPS_FULL)
		return 1;
	if (now <= g->start || age < p->epoch_ns)
		return 0;
	return age >= p->max_ns || (g->flags & BW_GAPS_FLIGHT ? g->flight.count + g->flight.told :
								bw_gaps_marked(g)) >= p->min_gaps;
}

BW_INLINE void bw_gaps_tally(struct bw_gaps *g, __u16 *counter)
{
	if (*counter < 0xfffe) {
		++*counter;
		return;
	}
	*counter = 0xffff;
	g->flags |= BW_GAPS_FULL;
}

BW_INLINE void bw_mode_add(struct bw_gaps *g, struct bw_mode *m, __u32 units, int marked)
{
	__u32 sum = m->sum + units;

	if (sum < units || m->count == 0xffff) {
		g->flags |= BW_GAPS_FULL;
		if (g->discarded != 0xffff)
			g->discarded++;
		return;
	}
	m->sum = sum;
	m->marked += !!marked;
	bw_gaps_tally(g, &m->count);
}

/* A mode as a word. */
BW_INLINE __u64 bw_mode_load(const struct bw_gaps *g, __u32 i)
{
	__u64 v;

	__builtin_memcpy(&v, &g->mode[i], sizeof(v));
	return v;
}

BW_INLINE void bw_mode_store(struct bw_gaps *g, __u32 i, __u64 v)
{
	__builtin_memcpy(&g->mode[i], &v, sizeof(v));
}

/* Mode i takes in its upper neighbour; those above move down. */
BW_INLINE void bw_modes_merge(struct bw_gaps *g, __u32 i)
{
	struct bw_mode *m = &g->mode[i & (BW_MODES - 1)];
	const struct bw_mode *n = &g->mode[(i + 1) & (BW_MODES - 1)];
	__u64 hi = bw_row_load(g->hi);
	__u32 count = m->count + n->count;
	__u32 marked = m->marked + n->marked;
	__u32 sum = m->sum + n->sum;

	/* together too many: those over are discarded, the epoch ends */
	if (count > 0xffff || sum < m->sum) {
		__u32 lost = g->discarded + n->count;

		g->discarded = lost > 0xffff ? 0xffff : lost;
		g->flags |= BW_GAPS_FULL;
	} else {
		m->count = count;
		m->marked = marked;
		m->sum = sum;
	}
	bw_row_store(g->lo, bw_row_remove(bw_row_load(g->lo), i + 1));
	bw_row_store(g->hi, bw_row_remove(hi, i));
	for (__u32 j = 1; j < BW_MODES - 1; j++)
		bw_mode_store(g, j, bw_select(bw_less(i, j), bw_mode_load(g, j + 1), bw_mode_load(g, j)));
	bw_mode_store(g, BW_MODES - 1, 0);
}

/* A new mode before mode i. There is room. */
BW_INLINE void bw_modes_insert(struct bw_gaps *g, __u32 i, __u32 code)
{
	i &= BW_MODES - 1;
	for (__u32 j = BW_MODES - 1; j > 0; j--)
		bw_mode_store(g, j, bw_select(bw_less(i, j), bw_mode_load(g, j - 1), bw_mode_load(g, j)));
	bw_row_store(g->lo, bw_row_insert(bw_row_load(g->lo), i, code));
	bw_row_store(g->hi, bw_row_insert(bw_row_load(g->hi), i, code));
	bw_mode_store(g, i, 0);
}

/* How many modes begin at or below a code: eight comparisons at once, ascending rows. */
BW_INLINE __u32 bw_modes_upto(__u64 lo, __u32 code)
{
	__u64 high = 0x8080808080808080ULL, ones = 0x0101010101010101ULL;
	__u64 c = code * ones;
	__u64 low7 = (c | high) - (lo & ~high); /* bit 7: the lower bits of c are not less */
	__u64 ge = ((c & ~lo) | (~(c ^ lo) & low7)) & high;

	return (ge >> 7) * ones >> 56;
}

/*
 * A gap outside of all modes (Algorithm 2, with relative distances). It extends a mode that is near,
 * and joins two that are; else it becomes a mode. Where there is no room, the two neighbours that
 * are closest of all are joined: the widest valleys stay. Gives the mode to add it to.
 */
BW_INLINE __u32 bw_modes_place(struct bw_gaps *g, __u32 code, __u32 upto)
{
	__u64 lo = bw_row_load(g->lo), hi = bw_row_load(g->hi);
	__u32 below = upto ? code - bw_byte(hi, upto - 1) : 0xff;
	__u32 above = upto < BW_MODES ? bw_byte(lo, upto) - code : 0xff;
	__u32 i = upto;

	if (below > BW_MODE_WIDTH && above > BW_MODE_WIDTH &&
	    bw_byte(lo, BW_MODES - 1) != BW_NO_MODE) {
		__u64 closest = 0xff, at = 0;

		for (__u32 j = 0; j < BW_MODES - 1; j++) {
			__u64 d = bw_byte(lo, j + 1) - bw_byte(hi, j);
			/* the gap itself lies between the modes upto - 1 and upto */
			__u64 closer = bw_less(d, closest) & bw_less(0, (j + 1) ^ upto);

			closest = bw_select(closer, d, closest);
			at = bw_select(closer, j, at);
		}
		if (closest < below && closest < above) {
			bw_modes_merge(g, at);
			if (at < i)
				i--;
		} else if (below <= above) {
			above = 0xff;
			below = 0;
		} else {
			below = 0xff;
			above = 0;
		}
	}
	if (below <= BW_MODE_WIDTH) {
		i = (upto - 1) & (BW_MODES - 1);
		bw_row_store(g->hi, bw_row_set(hi, i, code));
		if (above <= BW_MODE_WIDTH)
			bw_modes_merge(g, i);
	} else if (above <= BW_MODE_WIDTH) {
		bw_row_store(g->lo, bw_row_set(lo, i & (BW_MODES - 1), code));
	} else {
		bw_modes_insert(g, i, code);
	}
	return i;
}

/* Algorithm 1: two modes, parted at a threshold. */
BW_INLINE void bw_gaps_fixed(struct bw_gaps *g, const struct bw_gaps_params *p, __u32 units)
{
	__u32 i = units > bw_gap_units(p->fixed_ns), code = bw_gap_code(units);

	if (g->lo[i] == BW_NO_MODE || code < g->lo[i])
		g->lo[i] = code;
	if (g->hi[i] == BW_NO_MODE || code > g->hi[i])
		g->hi[i] = code;
	bw_mode_add(g, &g->mode[i], units, 1);
}

/*
 * A packet that counts. `marked`: the gap before it may be a pause between batches: the packet before
 * was not full-sized and, where the flow has BW_GAPS_ACKS, this one acknowledges more than that.
 */
BW_INLINE void bw_gaps_packet(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
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
		bw_gaps_tally(g, &g->resent);
		return;
	}
	if (gap >> BW_IDLE_SHIFT >= p->idle_ns) {
		bw_gaps_tally(g, &g->idle);
		return;
	}
	units = bw_gap_units(gap);
	if (p->algorithm == BW_GAPS_FIXED) {
		bw_gaps_fixed(g, p, units);
		return;
	}
	code = bw_gap_code(units);
	upto = bw_modes_upto(bw_row_load(g->lo), code);
	if (upto && g->hi[(upto - 1) & (BW_MODES - 1)] >= code)
		upto--;
	else
		upto = bw_modes_place(g, code, upto);
	bw_mode_add(g, &g->mode[upto & (BW_MODES - 1)], units, marked);
}

/*
 * All responses had come at `at`, and the client sends only `now`: in between it thought, which is not
 * latency. The ACK that told may itself be a delayed one, so a gap that is idle anyway stays so.
 */
BW_INLINE void bw_gaps_answered(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
				__u64 at)
{
	if (g->last <= at && at <= now && now - g->last < p->idle_ns)
		g->last += now - at;
}

BW_INLINE void bw_gaps_after(struct bw_gaps *g, __u32 ip_len)
{
	if (bw_gaps_full_sized(g, ip_len))
		g->flags |= BW_GAPS_AFTER_FULL;
	else
		g->flags &= ~BW_GAPS_AFTER_FULL;
}

/* A packet with payload that is seen for the first time, where requests in flight are kept. */
BW_INLINE void bw_gaps_in_flight(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
				 enum bw_cause cause, __u64 at)
{
	/* what a response released is a request, whatever its size */
	int begins = !(g->flags & BW_GAPS_AFTER_FULL) || cause != BW_NO_NEWS;
	struct bw_flight *f = &g->flight;
	__u64 last = g->last;

	if (now < last)
		now = last; /* clocks of CPUs differ */
	g->last = now;
	f->gaps += !!last;
	if (cause != BW_NEWS && last && (now - last) >> BW_IDLE_SHIFT >= p->idle_ns) {
		bw_gaps_tally(g, &g->idle);
		if (cause == BW_NO_NEWS)
			bw_flight_drained(f);
	}
	bw_flight_packet(f, now, last, cause, at, begins);
}

/* A pure ACK: it does not count, but says when a response came. */
BW_INLINE void bw_gaps_tcp_ack(const struct bw_gaps *g, struct bw_stream *s, __u64 now, __u32 ack)
{
	__u32 units;

	if (!g->last || !bw_after(ack, s->ack))
		return;
	s->ack = ack;
	units = now > g->last ? bw_gap_units(now - g->last) : 0;
	s->acked_at = units ? units : 1;
}

/*
 * A retransmission, where requests in flight are kept. It says of responses what a pure ACK does; when
 * one was told of, the time of that is relative to `last`.
 */
BW_INLINE void bw_gaps_resent(struct bw_gaps *g, struct bw_stream *s, __u64 now, __u32 ack)
{
	if (s->acked_at || bw_after(ack, s->ack))
		bw_gaps_tcp_ack(g, s, now, ack);
	else if (now > g->last)
		g->last = now;
	bw_gaps_tally(g, &g->resent);
}

/*
 * A TCP segment with payload. A request that a response triggered acknowledges that response: a gap
 * that ends without news of the server is no pause. When a pure ACK has already told all that the
 * segment acknowledges, the responses were complete by then.
 */
BW_INLINE void bw_gaps_tcp(struct bw_gaps *g, struct bw_stream *s, const struct bw_gaps_params *p,
			   __u64 now, __u32 seq, __u32 len, __u32 ack, __u32 ip_len)
{
	int first = !g->last, told = s->acked_at != 0, news = bw_after(ack, s->ack);
	__u64 at = g->last + ((__u64)s->acked_at << BW_GAP_SHIFT);
	__u32 end = seq + len;
	int behind = !first && !bw_after(end, s->next_seq);
	enum bw_cause cause;

	if (p->algorithm == BW_GAPS_AUTO && !(g->flags & BW_GAPS_ACKS)) {
		__builtin_memset(&g->flight, 0, sizeof(g->flight));
		g->flags |= BW_GAPS_FLIGHT;
	}
	g->flags |= BW_GAPS_ACKS;
	if (g->flags & BW_GAPS_FLIGHT) {
		if (behind && bw_flight_resent(&g->flight, len)) {
			bw_gaps_resent(g, s, now, ack);
			return;
		}
		if (!first && bw_after(seq, s->next_seq))
			bw_flight_jumped(&g->flight, seq - s->next_seq);
		cause = first ? BW_NO_NEWS : news ? BW_NEWS : told ? BW_TOLD : BW_NO_NEWS;
		bw_gaps_in_flight(g, p, now, cause, at);
	} else {
		if (told && !news && !first)
			bw_gaps_answered(g, p, now, at);
		bw_gaps_packet(g, p, now, first || news || told, behind);
	}
	bw_gaps_after(g, ip_len);
	if (first || !behind)
		s->next_seq = end;
	if (first || news)
		s->ack = ack;
	s->acked_at = 0;
}

/* A datagram, or any packet of which only the length is known. */
BW_INLINE void bw_gaps_datagram(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
				__u32 ip_len)
{
	bw_gaps_packet(g, p, now, !(g->flags & BW_GAPS_AFTER_FULL), 0);
	bw_gaps_after(g, ip_len);
}

/* What several modes hold together. */
struct bw_span {
	__u64 sum; /* units */
	__u64 count;
	__u64 marked;
};

/* Adds mode i where c is 1. */
BW_INLINE void bw_span_add(struct bw_span *s, const struct bw_gaps *g, __u32 i, __u64 c)
{
	s->sum += g->mode[i].sum & -c;
	s->count += g->mode[i].count & -c;
	s->marked += g->mode[i].marked & -c;
}

/* How far mode i lies above its lower neighbour, in codes; meaningless where there is no mode i. */
BW_INLINE __u64 bw_valley(__u64 lo, __u64 hi, __u32 i)
{
	return i ? (bw_byte(lo, i) - bw_byte(hi, i - 1)) & 0xff : 0;
}

/* Which part of the gaps is latency, and which of them are the pauses. */
struct bw_shape {
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
BW_INLINE void bw_gaps_shape(const struct bw_gaps *g, const struct bw_gaps_params *p,
			     struct bw_shape *s)
{
	__u64 lo = bw_row_load(g->lo), hi = bw_row_load(g->hi);
	__u64 idle = bw_gap_code(bw_gap_units(p->idle_ns)), acks = g->flags & BW_GAPS_ACKS;
	__u64 total, upto_end, end = 0, valley = 0;
	__u32 weight[BW_MODES];
	struct bw_span all = {}, below = {};

	for (__u32 i = 0; i < BW_MODES; i++)
		end += bw_less(bw_byte(lo, i), BW_NO_MODE);
	for (__u32 i = BW_MODES; i-- > 0;) {
		__u64 apart = i ? bw_less(bw_valley(lo, hi, i), BW_IDLE_VALLEY) ^ 1 : 1;

		end = bw_select(bw_less(i, end) & apart & (bw_less(bw_byte(lo, i), idle) ^ 1), i,
				end);
	}
	for (__u32 i = 0; i < BW_MODES; i++)
		bw_span_add(&all, g, i, bw_less(i, end));
	s->counted = (acks ^ 1) & bw_less(all.marked, 1);
	total = bw_select(s->counted, all.count, all.marked);
	for (__u32 i = 0; i < BW_MODES; i++) {
		__u64 under = bw_select(s->counted, below.count, below.marked);
		__u64 over = total - (under & -bw_less(i, end));
		__u64 burst = bw_less(under * 2, below.count) & bw_less(under * 2, over);
		__u64 lowest = bw_less(valley, 1) & (bw_less(over * BW_SUPPORT, total) ^ 1);
		__u64 deep = bw_less(bw_valley(lo, hi, i), BW_VALLEY) ^ 1;

		valley = bw_select(bw_less(i, end) & deep & bw_select(acks, burst, lowest), i,
				   valley);
		weight[i] = under;
		bw_span_add(&below, g, i, 1);
	}
	s->pauses = valley;
	upto_end = total;
	for (__u32 i = BW_MODES; i-- > 0;) {
		__u64 far = bw_less(bw_valley(lo, hi, i), BW_THINK) ^ 1;
		__u64 inside = bw_less(i, end) & bw_less(valley, i);
		__u64 rest = (upto_end - weight[i]) & -inside;
		__u64 think = inside & far & bw_less(rest * BW_SUPPORT, total);

		end = bw_select(think, i, end);
		upto_end = bw_select(think, weight[i], upto_end);
	}
	s->end = end;
	s->trust = bw_select(s->counted, 400,
			     bw_select(acks, 950, bw_select(bw_less(0, valley), 850, 700)));
}

BW_INLINE void bw_gaps_estimate(const struct bw_gaps *g, const struct bw_gaps_params *p,
				struct bw_estimate *out)
{
	struct bw_span all = {}, latency = {}, pauses = {};
	struct bw_shape s = { .pauses = 1, .end = BW_MODES, .trust = 500 };
	__u64 n;

	__builtin_memset(out, 0, sizeof(*out));
	if (g->flags & BW_GAPS_FLIGHT) {
		out->idle = g->idle;
		out->gaps = g->flight.gaps + g->resent;
		bw_flight_estimate(&g->flight, out);
		if (!out->batches && g->resent + out->idle)
			out->flags = BW_EST_STALLED;
		return;
	}
	if (p->algorithm != BW_GAPS_FIXED)
		bw_gaps_shape(g, p, &s);
	for (__u32 i = 0; i < BW_MODES; i++) {
		__u64 inside = bw_less(i, s.end);

		bw_span_add(&all, g, i, 1);
		bw_span_add(&latency, g, i, inside);
		bw_span_add(&pauses, g, i, inside & (bw_less(i, s.pauses) ^ 1));
	}
	out->gaps = all.count + g->discarded + g->idle + g->resent;
	out->idle = g->idle + all.count - latency.count;
	n = bw_select(s.counted, pauses.count, pauses.marked);
	if (!n) {
		if (g->resent + out->idle)
			out->flags = BW_EST_STALLED;
		return;
	}
	out->batches = n;
	out->latency = (latency.sum << BW_GAP_SHIFT) / n;
	out->ibg = (pauses.sum << BW_GAP_SHIFT) / pauses.count;
	/* n / (n + 3), and what had no room */
	out->confidence = s.trust * n / (n + 3) * all.count / (all.count + g->discarded);
}

#endif
