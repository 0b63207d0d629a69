/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a router asks before a packet enters its queue: the sources and the bursts that are known, what is
 * reserved, and the decision. For both queues of this folder, the kernel's and our own.
 */
#ifndef BW_BURST_ASK_H
#define BW_BURST_ASK_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "../flows/tag.h"
#include "../lib/admit.h"
#include "burst_intf.h"

/* Set before loading. */
const volatile struct bw_burst_rules rules;
const volatile __u32 packet_bytes; /* the queue is limited in packets, which count as so many bytes; 0: in bytes */
const volatile __u8 low;	   /* bits that the code points of marks share */

struct bw_flow {
	__u64 tag;
	struct bw_burst_lease lease;
};

/* By hashes, see bw_set(). Only who has the lock looks at them. */
struct bw_known {
	struct bw_source sources[BW_SOURCES];
	struct bw_flow flows[BW_SOURCES];
};

struct bw_queue {
	struct bpf_spin_lock lock;
	__u32 unused;
	struct bw_burst_reserved reserved;
	struct bw_admit_counts counts;
};

#define BW_ONE(name, type_of)                    \
	struct {                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, 1);          \
		__type(key, __u32);              \
		__type(value, type_of);          \
	} name SEC(".maps")

/* Maps, as the loader reads the same ones of two objects, and Linux 6.1 knows no locks in global variables. */
BW_ONE(queue, struct bw_queue);
BW_ONE(known, struct bw_known);
BW_ONE(aside, struct bw_admit_aside);
/* The longest that the queue was found, bytes; the agent sets it back. */
BW_ONE(highest, __u32);

BW_INLINE void *bw_one(void *map)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

BW_INLINE void bw_found(__u32 queued)
{
	__u32 *most = bw_one(&highest);

	if (most && *most < queued)
		*most = queued;
}

/* The first of the places in which a hash may be. */
BW_INLINE __u32 bw_set(__u64 hash)
{
	return (hash & (BW_SOURCES / BW_PLACES - 1)) * BW_PLACES;
}

/* 1 or 0, without a branch: the verifier would follow each of every place. */
BW_INLINE __u64 bw_is_zero(__u64 value)
{
	barrier_var(value);
	return (~value & (value - 1)) >> 63;
}

BW_INLINE int bw_is_live(const struct bw_flow *flow, __u64 epoch)
{
	return flow->lease.left && flow->lease.epoch >= epoch;
}

/* The flow's place, or a new one where a lease is over; NULL: there is none. */
BW_INLINE struct bw_flow *bw_find_flow(struct bw_known *k, __u64 tag, __u64 epoch,
				       struct bw_admit_counts *count)
{
	__u32 set = bw_set(tag), known = 0, over = 0, i;
	struct bw_flow *flow;

#pragma unroll
	for (i = 0; i < BW_PLACES; i++) {
		flow = &k->flows[(set + i) & (BW_SOURCES - 1)];
		known |= bw_is_zero(flow->tag ^ tag) << i;
		over |= (bw_is_zero(flow->lease.left) | bw_less(flow->lease.epoch, epoch)) << i;
	}
	if (!(known | over))
		return NULL;
	flow = &k->flows[(set + bw_msb(known ? known : over)) & (BW_SOURCES - 1)];
	if (bw_is_live(flow, epoch))
		return flow;
	count->lost += flow->lease.left && !flow->lease.refused;
	flow->tag = tag;
	flow->lease.left = 0;
	return flow;
}

/* The source's place, or that of the source whose credit is full the longest; NULL: none is full. */
BW_INLINE struct bw_source *bw_find_source(struct bw_known *k, const __u8 *addr, __u64 hash,
					   __u64 now)
{
	const bw_word64 *a = (const bw_word64 *)addr, *b;
	__u64 oldest = now + 1, place = BW_PLACES, less;
	__u32 set = bw_set(hash), known = 0, i;
	struct bw_source *source;

#pragma unroll
	for (i = 0; i < BW_PLACES; i++) {
		source = &k->sources[(set + i) & (BW_SOURCES - 1)];
		b = (const bw_word64 *)source->addr;
		known |= bw_is_zero((a[0] ^ b[0]) | (a[1] ^ b[1])) << i;
		less = -bw_less(source->credit.full_at, oldest);
		oldest ^= (oldest ^ source->credit.full_at) & less;
		place ^= (place ^ i) & less;
	}
	if (known)
		return &k->sources[(set + bw_msb(known)) & (BW_SOURCES - 1)];
	if (place == BW_PLACES)
		return NULL;
	source = &k->sources[(set + place) & (BW_SOURCES - 1)];
	__builtin_memset(source, 0, sizeof(*source));
	__builtin_memcpy(source->addr, addr, sizeof(source->addr));
	return source;
}

struct bw_asked {
	__u32 bytes;	/* of the packet, in the queue */
	__u32 segment;	/* of these: a segment, if it is a GSO buffer */
	__u32 segments; /* what its mark says; 0: no mark */
	__u32 queued;	/* bytes */
	__u64 tag;	/* of its flow */
	__u64 hash;	/* of its source */
	__u8 source[16] __attribute__((aligned(8)));
};

BW_INLINE void bw_count(struct bw_admit_counts *count, struct bw_source *source, int verdict, int marked)
{
	count->admitted += verdict == BW_BURST_ADMITTED;
	count->promised += verdict == BW_BURST_PROMISED;
	count->last += verdict == BW_BURST_LAST;
	count->refused += verdict == BW_BURST_REFUSED;
	count->denied += verdict == BW_BURST_DENIED;
	if (marked) {
		count->ignored += verdict == BW_BURST_TAKEN;
		count->overflowed += verdict == BW_BURST_FULL;
	} else {
		count->taken += verdict == BW_BURST_TAKEN;
		count->full += verdict == BW_BURST_FULL;
	}
	if (source) {
		source->admitted += verdict == BW_BURST_ADMITTED;
		source->refused += verdict == BW_BURST_REFUSED;
		source->ignored += verdict == BW_BURST_TAKEN;
		source->dropped += verdict > BW_BURST_LAST;
	}
}

/* Decides about a packet. A GSO buffer begins a burst by its first segment, and the others follow that. */
BW_INLINE int bw_decide(const struct bw_burst_rules *r, struct bw_queue *q, struct bw_flow *flow,
			struct bw_source *source, __u64 now, const struct bw_asked *asked)
{
	struct bw_burst_packet packet = { .bytes = asked->bytes, .segments = asked->segments };
	int verdict;

	if (flow && !bw_is_live(flow, q->reserved.epoch))
		packet.bytes = asked->segment;
	verdict = bw_burst_decide(r, &q->reserved, flow ? &flow->lease : NULL,
				  source ? &source->credit : NULL, now, asked->queued, &packet);
	if (!flow || packet.bytes == asked->bytes)
		return verdict;
	if (verdict == BW_BURST_ADMITTED || verdict == BW_BURST_REFUSED)
		bw_burst_follow(r, &q->reserved, &flow->lease, asked->queued,
				asked->bytes - packet.bytes);
	else if (!bw_burst_fits(r, asked->queued, q->reserved.bytes, asked->bytes))
		verdict = BW_BURST_FULL;
	return verdict;
}

/* enum bw_burst_verdict */
BW_APART int bw_ask(const struct bw_asked *asked)
{
	const struct bw_burst_rules *r = (const void *)&rules;
	struct bw_source *source = NULL;
	struct bw_flow *flow = NULL;
	__u64 now = bpf_ktime_get_ns();
	struct bw_queue *q = bw_one(&queue);
	struct bw_known *k = bw_one(&known);
	__u32 reserved;
	int verdict;

	barrier_var(r); /* or the compiler takes the values that it sees here for final */
	if (!q || !k || !asked)
		return BW_BURST_TAKEN;
	bpf_spin_lock(&q->lock);
	reserved = q->reserved.bytes;
	bw_burst_advance(&q->reserved, now >> r->epoch_shift);
	q->counts.lost_bytes += reserved - q->reserved.bytes;
	if (asked->segments) {
		flow = bw_find_flow(k, asked->tag, q->reserved.epoch, &q->counts);
		source = bw_find_source(k, asked->source, asked->hash, now);
	}
	verdict = bw_decide(r, q, flow, source, now, asked);
	bw_count(&q->counts, source, verdict, asked->segments != 0);
	bpf_spin_unlock(&q->lock);
	return verdict;
}

/* Names the source: its address, IPv4 as IPv4-mapped IPv6, is in place. */
BW_INLINE void bw_name_source(struct bw_asked *asked)
{
	const bw_word64 *words = (const bw_word64 *)asked->source;

	asked->hash = bw_finish(bw_mix(bw_mix(hash_keys[0], words[0]), words[1]));
}

#endif
