/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The lengths of a flow's gaps, in at most FLOW_MODES modes: whereto a gap belongs, and what becomes of
 * modes when one comes that belongs to none. Helper-free.
 */
#ifndef FLOW_MODES_H
#define FLOW_MODES_H

#include "flight.h"

#define FLOW_MODES 8

/* Gaps of about the same length. */
struct flow_mode {
	__u32 sum; /* of the gaps, in units of 2^FLOW_GAP_SHIFT ns */
	__u16 count;
	__u16 marked; /* of these: may be pauses between batches */
};

/* flow_gaps.flags */
enum flow_gaps_flag {
	FLOW_GAPS_ACKS = 0x1, /* marks tell which packets a response triggered (TCP), not only sizes */
	FLOW_GAPS_FULL = 0x2, /* a counter is at its end: close the epoch */
	FLOW_GAPS_AFTER_FULL = 0x4, /* the last packet was full-sized */
	FLOW_GAPS_FLIGHT = 0x8,	  /* requests in flight are kept, not modes */
	FLOW_GAPS_BURSTS = 0x10,	  /* modes are kept for now: the client sends bursts */
};

/* An open epoch of one flow. All zero: a flow without a packet. */
struct flow_gaps {
	__u64 start; /* ns, the packet that opened it */
	__u64 last;  /* ns, the last packet that counts; pure ACKs do not */
	union {
		struct {
			struct flow_mode mode[FLOW_MODES]; /* ascending, the empty ones last */
			__u8 lo[FLOW_MODES]; /* their extent as codes, 8 an octave; 255: empty */
			__u8 hi[FLOW_MODES];
		};
		struct flow_flight flight; /* with FLOW_GAPS_FLIGHT */
	};
	__u16 discarded; /* gaps that no counter had room for */
	__u16 idle;	 /* gaps beyond all latencies: idle_ns x 2^FLOW_IDLE_SHIFT */
	__u16 resent;	 /* gaps before a retransmission */
	__u8 flags;
	__u8 largest; /* largest packet seen, in units of 64 B of IP length */
};

enum flow_gaps_algorithm { FLOW_GAPS_AUTO, FLOW_GAPS_MODES, FLOW_GAPS_FIXED };

struct flow_gaps_params {
	__u64 epoch_ns; /* an epoch lasts at least this */
	__u64 max_ns;	/* and at most this while it has fewer than min_gaps marked; at most 30 s */
	__u64 idle_ns;	/* gaps as long as this may be timeouts or idle time; at most 3 s */
	__u64 fixed_ns; /* FLOW_GAPS_FIXED: a longer gap begins a batch */
	enum flow_gaps_algorithm algorithm;
	__u32 min_gaps;
};

/* Lengths as codes: 8 to the octave, so that a difference of codes is a ratio of gaps. */
#define FLOW_OCTAVE 8
#define FLOW_NO_MODE 0xff
#define FLOW_MODE_WIDTH 2	/* gaps up to about 25 % from a mode join it */

/*
 * Where a choice is not rare, it is arithmetic: the verifier follows each combination of branches, and
 * here there are more than it has patience for.
 */

/* a where c is 1, b where it is 0. */
BW_INLINE __u64 flow_select(__u64 c, __u64 a, __u64 b)
{
	return b ^ ((a ^ b) & -c);
}

/* The code of a gap in units of 2^FLOW_GAP_SHIFT ns. */
BW_INLINE __u32 flow_gap_code(__u32 u)
{
	__u64 msb;

	if (u < FLOW_OCTAVE)
		return u;
	msb = bw_msb(u);
	return (msb - 2) << 3 | (u >> (msb - 3) & 7);
}

/* ns to units; what does not fit is beyond all that is kept. */
BW_INLINE __u32 flow_gap_units(__u64 ns)
{
	ns >>= FLOW_GAP_SHIFT;
	return ns > 0xffffffff ? 0xffffffff : ns;
}

/* Byte i of eight; word-wise, so that rows of codes can be searched and shifted at once. */
BW_INLINE __u32 flow_byte(__u64 row, __u32 i)
{
	return row >> (i * 8) & 0xff;
}

BW_INLINE __u64 flow_row_set(__u64 row, __u32 i, __u32 code)
{
	return (row & ~(0xffULL << (i * 8))) | (__u64)code << (i * 8);
}

BW_INLINE __u64 flow_row_insert(__u64 row, __u32 i, __u32 code)
{
	__u64 below = (1ULL << (i * 8)) - 1;

	return (row & below) | (__u64)code << (i * 8) | (row & ~below) << 8;
}

BW_INLINE __u64 flow_row_remove(__u64 row, __u32 i)
{
	__u64 below = (1ULL << (i * 8)) - 1;

	return (row & below) | (row >> 8 & ~below) | (__u64)FLOW_NO_MODE << 56;
}

/* Rows are aligned, which memcpy cannot know: it would go byte by byte. */
typedef __u64 __attribute__((may_alias)) flow_row;

BW_INLINE __u64 flow_row_load(const __u8 *row)
{
	return *(const flow_row *)row;
}

BW_INLINE void flow_row_store(__u8 *row, __u64 v)
{
	*(flow_row *)row = v;
}

BW_INLINE __u32 flow_gaps_marked(const struct flow_gaps *g)
{
	__u32 n = 0;

	for (int i = 0; i < FLOW_MODES; i++)
		n += g->mode[i].marked;
	return n;
}

BW_INLINE __u32 flow_gaps_count(const struct flow_gaps *g)
{
	__u32 n = 0;

	for (int i = 0; i < FLOW_MODES; i++)
		n += g->mode[i].count;
	return n;
}

BW_INLINE void flow_gaps_tally(struct flow_gaps *g, __u16 *counter)
{
	if (*counter < 0xfffe) {
		++*counter;
		return;
	}
	*counter = 0xffff;
	g->flags |= FLOW_GAPS_FULL;
}

BW_INLINE void flow_mode_add(struct flow_gaps *g, struct flow_mode *m, __u32 units, int marked)
{
	__u32 sum = m->sum + units;

	if (sum < units || m->count == 0xffff) {
		g->flags |= FLOW_GAPS_FULL;
		if (g->discarded != 0xffff)
			g->discarded++;
		return;
	}
	m->sum = sum;
	m->marked += !!marked;
	flow_gaps_tally(g, &m->count);
}

/* A mode as a word. */
BW_INLINE __u64 flow_mode_load(const struct flow_gaps *g, __u32 i)
{
	__u64 v;

	__builtin_memcpy(&v, &g->mode[i], sizeof(v));
	return v;
}

BW_INLINE void flow_mode_store(struct flow_gaps *g, __u32 i, __u64 v)
{
	__builtin_memcpy(&g->mode[i], &v, sizeof(v));
}

/* Mode i takes in its upper neighbour; those above move down. */
BW_INLINE void flow_modes_merge(struct flow_gaps *g, __u32 i)
{
	struct flow_mode *m = &g->mode[i & (FLOW_MODES - 1)];
	const struct flow_mode *n = &g->mode[(i + 1) & (FLOW_MODES - 1)];
	__u64 hi = flow_row_load(g->hi);
	__u32 count = m->count + n->count;
	__u32 marked = m->marked + n->marked;
	__u32 sum = m->sum + n->sum;

	/* together too many: those over are discarded, the epoch ends */
	if (count > 0xffff || sum < m->sum) {
		__u32 lost = g->discarded + n->count;

		g->discarded = lost > 0xffff ? 0xffff : lost;
		g->flags |= FLOW_GAPS_FULL;
	} else {
		m->count = count;
		m->marked = marked;
		m->sum = sum;
	}
	flow_row_store(g->lo, flow_row_remove(flow_row_load(g->lo), i + 1));
	flow_row_store(g->hi, flow_row_remove(hi, i));
	for (__u32 j = 1; j < FLOW_MODES - 1; j++)
		flow_mode_store(g, j, flow_select(bw_less(i, j), flow_mode_load(g, j + 1),
						  flow_mode_load(g, j)));
	flow_mode_store(g, FLOW_MODES - 1, 0);
}

/* A new mode before mode i. There is room. */
BW_INLINE void flow_modes_insert(struct flow_gaps *g, __u32 i, __u32 code)
{
	i &= FLOW_MODES - 1;
	for (__u32 j = FLOW_MODES - 1; j > 0; j--)
		flow_mode_store(g, j, flow_select(bw_less(i, j), flow_mode_load(g, j - 1),
						  flow_mode_load(g, j)));
	flow_row_store(g->lo, flow_row_insert(flow_row_load(g->lo), i, code));
	flow_row_store(g->hi, flow_row_insert(flow_row_load(g->hi), i, code));
	flow_mode_store(g, i, 0);
}

/* How many modes begin at or below a code: eight comparisons at once, ascending rows. */
BW_INLINE __u32 flow_modes_upto(__u64 lo, __u32 code)
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
BW_INLINE __u32 flow_modes_place(struct flow_gaps *g, __u32 code, __u32 upto)
{
	__u64 lo = flow_row_load(g->lo), hi = flow_row_load(g->hi);
	__u32 below = upto ? code - flow_byte(hi, upto - 1) : 0xff;
	__u32 above = upto < FLOW_MODES ? flow_byte(lo, upto) - code : 0xff;
	__u32 i = upto;

	if (below > FLOW_MODE_WIDTH && above > FLOW_MODE_WIDTH &&
	    flow_byte(lo, FLOW_MODES - 1) != FLOW_NO_MODE) {
		__u64 closest = 0xff, at = 0;

		for (__u32 j = 0; j < FLOW_MODES - 1; j++) {
			__u64 d = flow_byte(lo, j + 1) - flow_byte(hi, j);
			/* the gap itself lies between the modes upto - 1 and upto */
			__u64 closer = bw_less(d, closest) & bw_less(0, (j + 1) ^ upto);

			closest = flow_select(closer, d, closest);
			at = flow_select(closer, j, at);
		}
		if (closest < below && closest < above) {
			flow_modes_merge(g, at);
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
	if (below <= FLOW_MODE_WIDTH) {
		i = (upto - 1) & (FLOW_MODES - 1);
		flow_row_store(g->hi, flow_row_set(hi, i, code));
		if (above <= FLOW_MODE_WIDTH)
			flow_modes_merge(g, i);
	} else if (above <= FLOW_MODE_WIDTH) {
		flow_row_store(g->lo, flow_row_set(lo, i & (FLOW_MODES - 1), code));
	} else {
		flow_modes_insert(g, i, code);
	}
	return i;
}

/* Joining and inserting are long: the verifier walks them once. */
BW_NOINLINE int flow_modes_place_apart(struct flow_gaps *g, __u32 code, __u32 upto)
{
	return g ? flow_modes_place(g, code, upto) : 0;
}

/* Algorithm 1: two modes, parted at a threshold. */
BW_INLINE void flow_gaps_fixed(struct flow_gaps *g, const struct flow_gaps_params *p, __u32 units)
{
	__u32 i = units > flow_gap_units(p->fixed_ns), code = flow_gap_code(units);

	if (g->lo[i] == FLOW_NO_MODE || code < g->lo[i])
		g->lo[i] = code;
	if (g->hi[i] == FLOW_NO_MODE || code > g->hi[i])
		g->hi[i] = code;
	flow_mode_add(g, &g->mode[i], units, 1);
}

#endif
