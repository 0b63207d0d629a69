/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Bursts that a queue takes whole or not at all: the twin of batchwise-core's `burst`. The caller keeps
 * leases by flow and credits by source, in maps, and what is reserved under a lock. Helper-free.
 */
#ifndef BURST_ADMIT_H
#define BURST_ADMIT_H

#include "base.h"

#define BURST_EPOCHS 8
#define BURST_UNIT_SHIFT 20 /* times are per 2^20 bytes */

/* What a queue promises. User space fills it in: nothing is divided here. */
struct burst_rules {
	__u64 send_time;    /* until 2^20 bytes have left the queue, ns */
	__u64 refill_time;  /* until so many bytes of a source's credit are back, ns */
	__u32 limit;	    /* bytes that the queue holds */
	__u32 source_bytes; /* a source's credit */
	__u32 epoch_shift;
	__u32 pad;
};

/* Bytes that were promised and have not come, by the epoch in which their promise ends. */
struct burst_reserved {
	__u64 epoch;
	__u32 bytes;
	__u32 until[BURST_EPOCHS];
	__u32 pad;
};

/* A flow's burst. */
struct burst_lease {
	__u64 epoch; /* until the end of this one */
	__u32 left;  /* bytes that have not come */
	__u32 refused;
};

/* A source's credit; all zero for an unknown one. */
struct burst_credit {
	__u64 full_at; /* ns */
};

struct burst_packet {
	__u32 bytes;
	__u32 segments; /* what its mark says, 0 without one */
};

/* As Rust's Verdict: those up to BURST_LAST are in the queue. */
enum burst_verdict {
	BURST_TAKEN,
	BURST_ADMITTED,
	BURST_PROMISED,
	BURST_LAST,
	BURST_FULL,
	BURST_REFUSED,
	BURST_DENIED,
};

BW_INLINE __u32 burst_add(__u32 a, __u32 b)
{
	return a + b < a ? ~0U : a + b;
}

BW_INLINE __u64 burst_time(__u64 per_unit, __u32 bytes)
{
	__u64 most = per_unit ? ~0ULL / per_unit : ~0ULL;

	/* else the compiler makes a multiplication of 128 bits of it, which BPF has not */
	__asm__ volatile("" : "+r"(most));
	return bytes > most ? ~0ULL >> BURST_UNIT_SHIFT : per_unit * bytes >> BURST_UNIT_SHIFT;
}

/* Gives back what was not used in time. */
BW_INLINE void burst_advance(struct burst_reserved *r, __u64 epoch)
{
	__u64 passed = epoch > r->epoch ? epoch - r->epoch : 0;

	for (__u32 i = 0; i < BURST_EPOCHS; i++) {
		__u32 *over = &r->until[(r->epoch + i) & (BURST_EPOCHS - 1)];

		if (i >= passed)
			break;
		r->bytes -= *over;
		*over = 0;
	}
	r->epoch += passed;
}

BW_INLINE int burst_fits(const struct burst_rules *rules, __u32 queued, __u32 held,
			 __u32 bytes)
{
	return burst_add(burst_add(queued, held), bytes) <= rules->limit;
}

/* A packet of a burst that was decided about. */
BW_INLINE enum burst_verdict burst_follow(const struct burst_rules *rules,
					  struct burst_reserved *r,
					  struct burst_lease *lease, __u32 queued,
					  __u32 bytes)
{
	__u32 used = bytes < lease->left ? bytes : lease->left;

	lease->left -= used;
	if (lease->refused) /* by its last packet the sender hears at once what is lost */
		return !lease->left && burst_fits(rules, queued, r->bytes, bytes) ?
			       BURST_LAST :
			       BURST_DENIED;
	r->until[lease->epoch & (BURST_EPOCHS - 1)] -= used;
	r->bytes -= used;
	return burst_fits(rules, queued, r->bytes, bytes) ? BURST_PROMISED : BURST_FULL;
}

/* The first packet of a burst. */
BW_INLINE enum burst_verdict burst_begin(const struct burst_rules *rules,
					 struct burst_reserved *r,
					 struct burst_lease *lease,
					 struct burst_credit *source, __u64 now,
					 __u32 queued, __u32 bytes, __u32 burst)
{
	__u64 full_at = source->full_at > now ? source->full_at : now;
	__u64 depth = burst_time(rules->refill_time, rules->source_bytes);
	__u64 end = now + 2 * burst_time(rules->send_time, burst);
	__u64 last = r->epoch + BURST_EPOCHS - 1;
	__u32 held = burst_add(r->bytes, burst);

	full_at += burst_time(rules->refill_time, burst);
	if (full_at - now > depth)
		return burst_fits(rules, queued, r->bytes, bytes) ? BURST_TAKEN :
								       BURST_FULL;
	end >>= rules->epoch_shift;
	end = end < r->epoch ? r->epoch : end;
	lease->epoch = end > last ? last : end;
	lease->left = burst - bytes;
	lease->refused = burst_add(queued, held) > rules->limit;
	if (lease->refused)
		return BURST_REFUSED;
	source->full_at = full_at;
	r->until[lease->epoch & (BURST_EPOCHS - 1)] += lease->left;
	r->bytes += lease->left;
	return BURST_ADMITTED;
}

/* Decides about a packet. `lease` and `source` are NULL where there is no room to keep them. */
BW_INLINE enum burst_verdict burst_decide(const struct burst_rules *rules,
					  struct burst_reserved *r,
					  struct burst_lease *lease,
					  struct burst_credit *source, __u64 now,
					  __u32 queued, const struct burst_packet *p)
{
	__u64 burst = (__u64)p->segments * p->bytes;

	burst_advance(r, now >> rules->epoch_shift);
	if (p->segments >= 2 && lease) {
		if (lease->left && lease->epoch >= r->epoch)
			return burst_follow(rules, r, lease, queued, p->bytes);
		if (source)
			return burst_begin(rules, r, lease, source, now, queued, p->bytes,
					   burst < ~0U ? burst : ~0U);
	}
	return burst_fits(rules, queued, r->bytes, p->bytes) ? BURST_TAKEN : BURST_FULL;
}

/* The classes of length, as Rust's `mark::CLASSES`. The caller keeps `class` below 16. */
#define BURST_ECN 3
#define BURST_LOW 3 /* bits of a code point that all marks share: `low` below */

BW_INLINE __u32 burst_length(__u32 class)
{
	/* 2, 3, 4, 5, 6, 8, 10, 12 and so on, a byte each */
	const __u64 low = 0x0c0a080605040302ULL, high = 0x4038302820181410ULL;

	return (class & 8 ? high : low) >> (8 * (class & 7)) & 0xff;
}

/* Segments that are left of the burst, from a TOS byte or traffic class; 0: not marked. */
BW_INLINE __u32 burst_segments(__u8 tos, __u32 low)
{
	__u32 dscp = tos >> 2;

	return (dscp & BURST_LOW) == low ? burst_length(dscp >> 2) : 0;
}

/* The TOS byte or traffic class of a packet of a burst; as it is if others use it. */
BW_INLINE __u8 burst_set_mark(__u8 tos, __u32 segments, __u32 low)
{
	__u32 class = 0;

	if (tos & ~BURST_ECN || segments < 2)
		return tos;
	for (__u32 i = 0; i < 15; i++)
		class += bw_less(burst_length(i), segments);
	return (class << 2 | low) << 2 | tos;
}

/* What it was before it was marked. */
BW_INLINE __u8 burst_clear_mark(__u8 tos, __u32 low)
{
	return burst_segments(tos, low) ? tos & BURST_ECN : tos;
}

#endif
