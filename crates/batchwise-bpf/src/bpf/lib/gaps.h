/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Latency from the gaps between the packets that a client sends (docs/passive.md): a flow's open
 * epoch, what a packet does to it, and what it says when it closes. Helper-free: compiled into the
 * BPF programs and, for the tests, on the host. The reference is batchwise-core, passive/.
 */
#ifndef BW_GAPS_H
#define BW_GAPS_H

#include "queue.h"

#define BW_GAP_SHIFT 4
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
 * Functions that the verifier checks once, for all arguments, instead of at every call with what it
 * knows there: else it follows each way through the modes.
 */
#ifdef __bpf__
#define BW_APART __attribute__((noinline))
#else
#define BW_APART static inline
#endif

/* The code of a gap in units of 2^BW_GAP_SHIFT ns. */
BW_INLINE __u32 bw_gap_code(__u32 u)
{
	__u32 msb = 0, v = u;

	if (u < BW_OCTAVE)
		return u;
	if (v >= 1 << 16) {
		v >>= 16;
		msb = 16;
	}
	if (v >= 1 << 8) {
		v >>= 8;
		msb += 8;
	}
	if (v >= 1 << 4) {
		v >>= 4;
		msb += 4;
	}
	if (v >= 1 << 2) {
		v >>= 2;
		msb += 2;
	}
	msb += v >> 1;
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

/* Begins an epoch; keeps when the last packet was, and what is known of the flow. */
BW_INLINE void bw_gaps_open(struct bw_gaps *g, __u64 now)
{
	g->start = now;
	for (int i = 0; i < BW_MODES; i++) {
		g->mode[i].sum = 0;
		g->mode[i].count = 0;
		g->mode[i].marked = 0;
	}
	bw_row_store(g->lo, ~0ULL);
	bw_row_store(g->hi, ~0ULL);
	g->discarded = 0;
	g->idle = 0;
	g->resent = 0;
	g->flags &= ~BW_GAPS_FULL;
}

BW_INLINE __u32 bw_gaps_marked(const struct bw_gaps *g)
{
	__u32 n = 0;

	for (int i = 0; i < BW_MODES; i++)
		n += g->mode[i].marked;
	return n;
}

/* Whether the epoch is to be closed before a packet that counts is added to the next one. */
BW_INLINE int bw_gaps_due(const struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now)
{
	__u64 age = now - g->start;

	if (g->flags & BW_GAPS_FULL)
		return 1;
	if (now <= g->start || age < p->epoch_ns)
		return 0;
	return age >= p->max_ns || bw_gaps_marked(g) >= p->min_gaps;
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

/* Mode i takes in its upper neighbour; those above move down. */
BW_APART int bw_modes_merge(struct bw_gaps *g, __u32 i)
{
	__u32 count, marked, sum;
	const struct bw_mode *n;
	struct bw_mode *m;
	__u64 hi;

	if (!g) /* for the verifier */
		return 0;
	i &= BW_MODES - 1;
	m = &g->mode[i];
	n = &g->mode[(i + 1) & (BW_MODES - 1)];
	hi = bw_row_load(g->hi);
	count = m->count + n->count;
	marked = m->marked + n->marked;
	sum = m->sum + n->sum;

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
		if (j > i)
			g->mode[j] = g->mode[j + 1];
	g->mode[BW_MODES - 1].sum = 0;
	g->mode[BW_MODES - 1].count = 0;
	g->mode[BW_MODES - 1].marked = 0;
	return 0;
}

/* A gap for which there is no mode: a new one before mode i. There is room. */
BW_APART int bw_modes_insert(struct bw_gaps *g, __u32 i, __u32 code)
{
	struct bw_mode *m;

	if (!g)
		return 0;
	i &= BW_MODES - 1;
	for (__u32 j = BW_MODES - 1; j > 0; j--)
		if (j > i)
			g->mode[j] = g->mode[j - 1];
	bw_row_store(g->lo, bw_row_insert(bw_row_load(g->lo), i, code));
	bw_row_store(g->hi, bw_row_insert(bw_row_load(g->hi), i, code));
	m = &g->mode[i];
	m->sum = 0;
	m->count = 0;
	m->marked = 0;
	return 0;
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
 * are closest of all are joined: the widest valleys stay.
 */
BW_APART int bw_modes_place(struct bw_gaps *g, __u32 units, __u32 code, int marked, __u32 upto)
{
	__u32 below, above, i = upto;
	__u64 lo, hi;

	if (!g)
		return 0;
	lo = bw_row_load(g->lo);
	hi = bw_row_load(g->hi);
	below = upto ? code - bw_byte(hi, upto - 1) : 0xff;
	above = upto < BW_MODES ? bw_byte(lo, upto) - code : 0xff;

	if (below > BW_MODE_WIDTH && above > BW_MODE_WIDTH &&
	    bw_byte(lo, BW_MODES - 1) != BW_NO_MODE) {
		__u32 closest = 0xff, at = 0;

		for (__u32 j = 0; j < BW_MODES - 1; j++) {
			__u32 d = bw_byte(lo, j + 1) - bw_byte(hi, j);

			if (j + 1 != upto && d < closest) {
				closest = d;
				at = j;
			}
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
		bw_mode_add(g, &g->mode[i], units, marked);
	} else if (above <= BW_MODE_WIDTH) {
		i = upto & (BW_MODES - 1);
		bw_row_store(g->lo, bw_row_set(lo, i, code));
		bw_mode_add(g, &g->mode[i], units, marked);
	} else {
		bw_modes_insert(g, i, code);
		bw_mode_add(g, &g->mode[i & (BW_MODES - 1)], units, marked);
	}
	return 0;
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
		bw_mode_add(g, &g->mode[(upto - 1) & (BW_MODES - 1)], units, marked);
	else
		bw_modes_place(g, units, code, marked, upto);
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

/*
 * A TCP segment with payload. A request that a response triggered acknowledges that response: a gap
 * that ends without news of the server is no pause. When a pure ACK has already told all that the
 * segment acknowledges, the responses were complete by then.
 */
BW_INLINE void bw_gaps_tcp(struct bw_gaps *g, struct bw_stream *s, const struct bw_gaps_params *p,
			   __u64 now, __u32 seq, __u32 len, __u32 ack, __u32 ip_len)
{
	int first = !g->last, told = s->acked_at != 0, news = bw_after(ack, s->ack);
	__u32 end = seq + len;
	int resent = !first && !bw_after(end, s->next_seq);

	g->flags |= BW_GAPS_ACKS;
	if (told && !news && !first)
		bw_gaps_answered(g, p, now, g->last + ((__u64)s->acked_at << BW_GAP_SHIFT));
	bw_gaps_packet(g, p, now, first || news || told, resent);
	bw_gaps_after(g, ip_len);
	if (first || !resent)
		s->next_seq = end;
	if (first || news)
		s->ack = ack;
	s->acked_at = 0;
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

/* A datagram, or any packet of which only the length is known. */
BW_INLINE void bw_gaps_datagram(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
				__u32 ip_len)
{
	bw_gaps_packet(g, p, now, !(g->flags & BW_GAPS_AFTER_FULL), 0);
	bw_gaps_after(g, ip_len);
}

/* Where modes begin, what they hold: an estimate's working copy. */
struct bw_span {
	__u64 sum; /* units */
	__u32 count;
	__u32 marked;
};

BW_INLINE void bw_span_add(struct bw_span *s, const struct bw_mode *m)
{
	s->sum += m->sum;
	s->count += m->count;
	s->marked += m->marked;
}

/* The modes [from, to). */
BW_INLINE struct bw_span bw_span_of(const struct bw_gaps *g, __u32 from, __u32 to)
{
	struct bw_span s = {};

	for (__u32 i = 0; i < BW_MODES; i++)
		if (i >= from && i < to)
			bw_span_add(&s, &g->mode[i]);
	return s;
}

/* How far mode i lies above its lower neighbour, in codes. */
BW_INLINE __u32 bw_valley(const struct bw_gaps *g, __u32 i)
{
	return i ? bw_byte(bw_row_load(g->lo), i) - bw_byte(bw_row_load(g->hi), i - 1) : 0;
}

/* From which mode on gaps are no latency for their length alone: timeouts, idle time. */
BW_INLINE __u32 bw_idle_from(const struct bw_gaps *g, const struct bw_gaps_params *p, __u32 modes)
{
	__u32 idle = bw_gap_code(bw_gap_units(p->idle_ns)), from = modes;

	for (__u32 i = BW_MODES; i-- > 0;)
		if (i < modes && g->lo[i] >= idle && (!i || bw_valley(g, i) >= BW_IDLE_VALLEY))
			from = i;
	return from;
}

/* Which part of the gaps is latency, and which of them are the pauses. */
struct bw_shape {
	__u32 pauses; /* the first mode of pauses */
	__u32 end;    /* the first mode beyond latency */
	__u32 trust;  /* 0 to 1000 */
	int counted;  /* all gaps count as marked: no mark helps */
};

/*
 * Bursts lie below a valley. With acknowledgments, gaps inside a burst are those that acknowledge
 * nothing new: the highest valley counts below which most gaps are such, and few marked ones lie
 * (responses that came one soon after the other). Without, the lowest valley with enough gaps above
 * it does.
 */
BW_INLINE void bw_gaps_shape(const struct bw_gaps *g, const struct bw_gaps_params *p,
			     struct bw_shape *s)
{
	int acks = g->flags & BW_GAPS_ACKS;
	struct bw_span all, below = {}, rest;
	__u32 modes = 0, valley = 0, total;

	for (int i = 0; i < BW_MODES; i++)
		modes += g->lo[i] != BW_NO_MODE;
	s->end = bw_idle_from(g, p, modes);
	all = bw_span_of(g, 0, s->end);
	s->counted = !acks && !all.marked;
	total = s->counted ? all.count : all.marked;
	s->pauses = 0;
	for (__u32 i = 0; i < BW_MODES; i++) {
		if (i >= s->end)
			break;
		if (bw_valley(g, i) >= BW_VALLEY) {
			__u32 under = s->counted ? below.count : below.marked;
			__u32 over = total - under;

			if (acks ? under * 2 < below.count && under * 2 < over
				 : !valley && over * BW_SUPPORT >= total)
				valley = i;
		}
		bw_span_add(&below, &g->mode[i]);
	}
	s->pauses = valley;
	for (__u32 i = BW_MODES; i-- > 0;) {
		if (i >= s->end || i <= s->pauses || bw_valley(g, i) < BW_THINK)
			continue;
		rest = bw_span_of(g, i, s->end);
		if ((s->counted ? rest.count : rest.marked) * BW_SUPPORT < total)
			s->end = i;
	}
	s->trust = s->counted ? 400 : acks ? 950 : valley ? 850 : 700;
}

BW_INLINE void bw_gaps_estimate(const struct bw_gaps *g, const struct bw_gaps_params *p,
				struct bw_estimate *out)
{
	struct bw_span latency, pauses, all = bw_span_of(g, 0, BW_MODES);
	struct bw_shape s = { .pauses = 1, .end = BW_MODES, .trust = 500 };
	__u32 n;

	__builtin_memset(out, 0, sizeof(*out));
	out->gaps = all.count + g->discarded + g->idle + g->resent;
	if (p->algorithm != BW_GAPS_FIXED)
		bw_gaps_shape(g, p, &s);
	latency = bw_span_of(g, 0, s.end);
	pauses = bw_span_of(g, s.pauses, s.end);
	out->idle = g->idle + all.count - latency.count;
	n = s.counted ? pauses.count : pauses.marked;
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
