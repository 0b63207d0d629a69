/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Requests in flight on one TCP flow, by the acknowledgments that its own packets carry
 * (docs/research/passive.md). Helper-free: compiled into the BPF programs and, for the tests, on the
 * host. The reference is batchwise-core, passive/flight.rs.
 */
#ifndef FLOW_FLIGHT_H
#define FLOW_FLIGHT_H

#include "base.h"

#define FLOW_GAP_SHIFT 4

#define FLOW_FLIGHT 8

/* Requests in flight, and an epoch of their latencies; times in 2^FLOW_GAP_SHIFT ns. */
struct flow_flight {
	__u32 sent[FLOW_FLIGHT]; /* when they were sent: a ring */
	__u64 sum;	/* of the epoch's latencies */
	__u64 pure_ack_sum; /* of those that only a pure ACK ended */
	__u32 count;	/* latencies in sum */
	__u32 gaps;	/* between packets that count */
	__u32 usual;	/* moving average of latencies; 0: none yet */
	__u32 begun;	/* requests, in as many epochs as it takes to tell bursts */
	__u32 alone;	/* of these: without news of the server */
	__u16 pure_acks; /* latencies in pure_ack_sum */
	__u16 missing;	/* bytes below the highest that were not seen yet */
	__u8 head;	/* position of the oldest */
	__u8 len;	/* how many are in flight */
	__u8 cap;	/* most that are; 0: not known */
	__u8 pending;	/* more than cap, seen once */
	__u8 tainted;	/* of len: delayed by a retransmission */
	__u8 late;	/* packets that came after others: they may be resent needlessly */
	__u8 grows;	/* the burst that goes on began with nothing in flight */
	__u8 sure;	/* len is right: it was seen to be 0 */
};

/* flow_estimate.flags */
enum flow_estimate_flag {
	FLOW_EST_STALLED = 0x1, /* nothing but retransmissions and waiting: no latency */
};

/* What a closed epoch says. */
struct flow_estimate {
	__u64 latency; /* ns, mean; 0: not known */
	__u64 ibg;     /* ns, mean pause between batches; 0: not known */
	__u32 batches;
	__u32 gaps; /* all that were seen */
	__u32 idle; /* of these: taken for timeouts, think or idle time */
	__u32 confidence; /* 0 to 1000 */
	__u32 flags;
	__u32 reserved;
};

/* An ACK so long after the request, 2^FLOW_GAP_SHIFT ns, may be a delayed one (TCP_DELACK_MIN). */
#define FLOW_DELACK (40000000 >> FLOW_GAP_SHIFT)
#define FLOW_SOON_SHIFT 2 /* a quarter of the usual latency after an ACK, a request follows what it tells */
#define FLOW_ENOUGH 64 /* fewer requests tell nothing of how the client sends */

/* Whether so many of all that do not wait for news are bursts' doing: half of them. */
#define flow_are_bursts(alone, all) ((alone) >= (all) / 2)

/* What a packet is to the requests in flight. */
enum flow_cause {
	FLOW_NO_NEWS,  /* it belongs to the burst before it */
	FLOW_NEWS,     /* it acknowledges more than was known: a response came just now */
	FLOW_PURE_ACK, /* a pure ACK had already acknowledged all */
};

BW_INLINE __u32 flow_flight_oldest(const struct flow_flight *f)
{
	return f->sent[f->head & (FLOW_FLIGHT - 1)];
}

/* Begins an epoch; keeps what is in flight. */
BW_INLINE void flow_flight_open(struct flow_flight *f)
{
	f->sum = 0;
	f->pure_ack_sum = 0;
	f->count = 0;
	f->pure_acks = 0;
	f->gaps = 0;
	if (f->begun >= FLOW_ENOUGH) {
		f->begun = 0;
		f->alone = 0;
	}
}

/* Nothing is in flight any more, and it is not known since when. */
BW_INLINE void flow_flight_drained(struct flow_flight *f)
{
	f->len = 0;
	f->tainted = 0;
	f->missing = 0;
	f->late = 0;
	f->grows = 1;
	f->sure = 1;
}

/* So many bytes before a packet were not seen: they were overtaken, or are lost. */
BW_INLINE void flow_flight_jumped(struct flow_flight *f, __u32 bytes)
{
	__u32 room = 0xffff - f->missing;

	f->missing += bytes < room ? bytes : room;
}

/*
 * A packet of `len` bytes, none beyond the highest: whether it is a retransmission, not one that was
 * overtaken. For a retransmission all in flight wait, unless the client resends what came late: then
 * nothing was lost.
 */
BW_INLINE int flow_flight_resent(struct flow_flight *f, __u32 len)
{
	if (len <= f->missing) {
		f->missing -= len;
		f->late += f->late != 0xff;
		return 0;
	}
	if (f->late)
		f->late--;
	else
		f->tainted = f->len;
	return 1;
}

/* The oldest was answered at `at`, unless a retransmission says that it is not known. */
BW_INLINE void flow_flight_pop(struct flow_flight *f, __u32 at)
{
	__u32 waited = at - flow_flight_oldest(f);

	f->head = (f->head + 1) & (FLOW_FLIGHT - 1);
	f->len--;
	if (f->tainted) {
		f->tainted--;
		return;
	}
	f->sum += waited;
	f->count++;
	f->usual = f->usual ? f->usual - f->usual / 8 + waited / 8 : waited;
}

/*
 * A burst that began with nothing in flight is over: so many the client has in flight at most, if it
 * shows it twice (responses that came together make a burst look longer).
 */
BW_INLINE void flow_flight_end_growth(struct flow_flight *f)
{
	if (!f->grows || f->len <= f->cap)
		return;
	if (f->cap <= 1 || f->len == f->pending)
		f->cap = f->len;
	f->pending = f->len;
}

/* A response came at `at`. */
BW_INLINE void flow_flight_released(struct flow_flight *f, __u32 at)
{
	flow_flight_end_growth(f);
	if (f->len)
		flow_flight_pop(f, at);
	f->grows = !f->len;
}

/* The client thought: all responses came in `wait` after the packet at `last`, evenly. */
BW_INLINE void flow_flight_all_answered(struct flow_flight *f, __u32 last, __u32 wait)
{
	__u32 n = f->len;

	flow_flight_end_growth(f);
	if (wait < FLOW_DELACK) {
		for (__u32 i = 1; i <= FLOW_FLIGHT; i++)
			if (i <= n)
				flow_flight_pop(f, last + wait * i / n);
	} else if (n == 1 && !f->tainted && f->pure_acks != 0xffff) {
		f->pure_ack_sum += (__u32)(last + wait - flow_flight_oldest(f));
		f->pure_acks++;
	}
	flow_flight_drained(f);
}

/* A pure ACK had brought all that the packet acknowledges at `at`, `wait` after the packet before. */
BW_INLINE void flow_flight_pure_ack(struct flow_flight *f, __u32 now, __u32 at, __u32 last,
				    __u32 quiet, __u32 wait)
{
	if (quiet <= f->usual >> FLOW_SOON_SHIFT)
		flow_flight_released(f, now); /* the ACK came before the client had read all */
	else if (quiet <= (f->usual ? f->usual : wait))
		flow_flight_released(f, at);
	else
		flow_flight_all_answered(f, last, wait);
}

/* A request begins; `soon` after the packet before, or with news of its own. */
BW_INLINE void flow_flight_begin(struct flow_flight *f, __u32 now, int soon)
{
	f->begun++;
	f->grows |= !f->cap;
	/* another response came with the last one; long after it, nothing says when */
	if (f->len >= FLOW_FLIGHT || (!f->grows && f->len && f->len >= f->cap)) {
		if (!soon && !f->tainted)
			f->tainted = 1;
		flow_flight_pop(f, now);
	}
	f->sent[(f->head + f->len) & (FLOW_FLIGHT - 1)] = now;
	f->len++;
}

/*
 * A packet with payload at `now`; `last`: that before it; `at`: when a pure ACK came, all ns;
 * `begins`: a request begins with it.
 */
BW_INLINE void flow_flight_packet(struct flow_flight *f, __u64 now, __u64 last, enum flow_cause cause,
				  __u64 at, int begins)
{
	__u32 units = now >> FLOW_GAP_SHIFT;

	if (cause == FLOW_NEWS)
		flow_flight_released(f, units);
	else if (cause == FLOW_PURE_ACK)
		flow_flight_pure_ack(f, units, at >> FLOW_GAP_SHIFT, last >> FLOW_GAP_SHIFT,
				     now > at ? (now - at) >> FLOW_GAP_SHIFT : 0,
				     at > last ? (at - last) >> FLOW_GAP_SHIFT : 0);
	else if (begins && f->len)
		f->alone++;
	if (begins)
		flow_flight_begin(f, units,
				  cause != FLOW_NO_NEWS || units - (__u32)(last >> FLOW_GAP_SHIFT) <=
							       f->usual >> FLOW_SOON_SHIFT);
}

/* What requests in flight say. */
BW_INLINE void flow_flight_estimate(const struct flow_flight *f, struct flow_estimate *out)
{
	/* a pure ACK that was delayed makes a latency longer: only where nothing better is known */
	__u64 sum = f->count ? f->sum : f->pure_ack_sum, n = f->count ? f->count : f->pure_acks;
	__u64 trust = !f->count ? 500 : f->sure ? 950 : 800;

	out->batches = n;
	if (!n)
		return;
	out->latency = (sum << FLOW_GAP_SHIFT) / n;
	out->confidence = trust * n / (n + 3);
}

#endif
