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

/* By hashes, see bw_set(). Only who holds the queue looks at them. */
struct bw_known {
	struct bw_source sources[BW_SOURCES];
	struct bw_flow_set flows[BW_SOURCES / BW_PLACES];
};

struct bw_queue {
	__u32 held; /* by a CPU, see bw_hold() */
	__u32 unused;
	__u64 tick; /* jiffies at the last look at the time */
	struct bw_burst_reserved reserved;
	struct bw_admit_counts counts;
};

#define BW_TRIES 256 /* to hold the queue: about a microsecond */

/* Each is a map of its own: the loader reads the same ones of two objects. */
struct bw_queue queue SEC(".data.queue");
struct bw_admit_aside aside SEC(".data.aside");
/* The longest that the queue was found, bytes; the agent sets it back. */
__u32 highest SEC(".data.highest");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bw_known);
} known SEC(".maps");

BW_INLINE void bw_found(__u32 queued)
{
	if (highest < queued)
		highest = queued;
}

struct bw_asked {
	__u32 bytes;	/* of the packet, in the queue */
	__u32 segment;	/* of these: a segment, if it is a GSO buffer */
	__u32 segments; /* what its mark says; 0: no mark */
	__u32 queued;	/* bytes */
	__u64 tag;	/* of its flow */
	__u8 source[16] __attribute__((aligned(8))); /* IPv4 as IPv4-mapped IPv6 */
};

BW_INLINE __u64 bw_source_hash(const struct bw_asked *asked)
{
	const bw_word64 *words = (const bw_word64 *)asked->source;

	return bw_finish(bw_mix(bw_mix(hash_keys[0], words[0]), words[1]));
}

/* Where the places of a hash are. */
BW_INLINE __u32 bw_set(__u64 hash)
{
	return hash & (BW_SOURCES / BW_PLACES - 1);
}

/* 1 or 0, without a branch: the verifier would follow each of every place. */
BW_INLINE __u64 bw_is_zero(__u64 value)
{
	barrier_var(value);
	return (~value & (value - 1)) >> 63;
}

BW_INLINE int bw_is_live(const struct bw_burst_lease *lease, __u64 epoch)
{
	return lease->left && lease->epoch >= epoch;
}

/* Where the flow's lease is, if it has one; BW_PLACES: nowhere. */
BW_INLINE __u32 bw_place(const struct bw_flow_set *set, __u64 tag)
{
	__u32 place = BW_PLACES, i;

#pragma unroll
	for (i = 0; i < BW_PLACES; i++)
		place -= bw_is_zero(set->tags[i] ^ tag) * (BW_PLACES - i);
	return place;
}

/* A lease of which nothing is left, in the flow's place or where one is over; NULL: there is none. */
BW_INLINE struct bw_burst_lease *bw_new_lease(struct bw_flow_set *set, __u32 place, __u64 tag, __u64 epoch,
					      struct bw_admit_counts *count)
{
	struct bw_burst_lease *lease;
	__u32 over = 0, i;

	if (place >= BW_PLACES) {
#pragma unroll
		for (i = 0; i < BW_PLACES; i++)
			over |= (bw_is_zero(set->leases[i].left) | bw_less(set->leases[i].epoch, epoch))
				<< i;
		if (!over)
			return NULL;
		place = bw_msb(over);
	}
	place &= BW_PLACES - 1;
	lease = &set->leases[place];
	count->lost += lease->left && !lease->refused;
	set->tags[place] = tag;
	lease->left = 0;
	return lease;
}

/* The source's place, or that of the source whose credit is full the longest; NULL: none is full. */
BW_INLINE struct bw_source *bw_find_source(struct bw_known *k, const struct bw_asked *asked, __u64 now)
{
	const bw_word64 *a = (const bw_word64 *)asked->source, *b;
	__u64 oldest = now + 1, place = BW_PLACES, less;
	__u32 set = bw_set(bw_source_hash(asked)) * BW_PLACES, known = 0, i;
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
	__builtin_memcpy(source->addr, asked->source, sizeof(source->addr));
	return source;
}

BW_INLINE void bw_count(struct bw_source *source, int verdict)
{
	source->admitted += verdict == BW_BURST_ADMITTED;
	source->refused += verdict == BW_BURST_REFUSED;
	source->ignored += verdict == BW_BURST_TAKEN;
	source->dropped += verdict > BW_BURST_LAST;
}

/* Decides about a packet. A GSO buffer begins a burst by its first segment, and the others follow that. */
BW_INLINE int bw_decide(const struct bw_burst_rules *r, struct bw_burst_reserved *reserved,
			struct bw_burst_lease *lease, struct bw_source *source, __u64 now,
			const struct bw_asked *asked)
{
	struct bw_burst_packet packet = { .bytes = asked->bytes, .segments = asked->segments };
	int verdict;

	if (lease && !lease->left)
		packet.bytes = asked->segment;
	verdict = bw_burst_decide(r, reserved, lease, source ? &source->credit : NULL, now,
				  asked->queued, &packet);
	if (!lease || packet.bytes == asked->bytes)
		return verdict;
	if (verdict == BW_BURST_ADMITTED || verdict == BW_BURST_REFUSED)
		bw_burst_follow(r, reserved, lease, asked->queued, asked->bytes - packet.bytes);
	else if (!bw_burst_fits(r, asked->queued, reserved->bytes, asked->bytes))
		verdict = BW_BURST_FULL;
	return verdict;
}

/*
 * Instead of bpf_spin_lock(), which costs 67 ns: what asks runs with softirqs off, so interrupts can stay on. -1: another
 * CPU holds the queue for longer than a decision takes. It may have lost its CPU (a virtual machine's, or to
 * another task under PREEMPT_RT), so nobody waits for it to the end.
 */
BW_INLINE int bw_hold(struct bw_queue *q)
{
	int i;

	for (i = 0; i < BW_TRIES; i++)
		if (!bw_load(&q->held) && !__sync_lock_test_and_set(&q->held, 1))
			return 0;
	return -1;
}

BW_INLINE void bw_let_go(struct bw_queue *q)
{
	bw_store(&q->held, 0);
}

/* The time; what was reserved and not used until now is given back. */
BW_INLINE __u64 bw_advance(const struct bw_burst_rules *r, struct bw_queue *q)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 reserved = q->reserved.bytes;

	q->tick = bpf_jiffies64();
	bw_burst_advance(&q->reserved, now >> r->epoch_shift);
	q->counts.lost_bytes += reserved - q->reserved.bytes;
	return now;
}

/* Behind what is reserved, without holding the queue. */
BW_INLINE int bw_ask_plain(const struct bw_burst_rules *r, struct bw_queue *q, const struct bw_asked *asked)
{
	return bw_burst_fits(r, asked->queued, bw_load(&q->reserved.bytes), asked->bytes) ?
		       BW_BURST_TAKEN :
		       BW_BURST_FULL;
}

/* Without a mark. What fits behind all that was ever promised needs neither the time nor the queue alone. */
BW_INLINE int bw_ask_unmarked(const struct bw_burst_rules *r, struct bw_queue *q, const struct bw_asked *asked)
{
	int verdict = bw_ask_plain(r, q, asked);

	if (verdict == BW_BURST_TAKEN || !bw_load(&q->reserved.bytes) || bw_hold(q))
		return verdict;
	bw_advance(r, q);
	bw_let_go(q);
	return bw_ask_plain(r, q, asked);
}

/*
 * With a mark. What was promised, and has room, needs neither the time nor the source, until the next tick of
 * jiffies: so much longer may a lease live.
 */
BW_INLINE int bw_ask_marked(const struct bw_burst_rules *r, struct bw_queue *q, struct bw_known *k,
			    const struct bw_asked *asked)
{
	struct bw_flow_set *set = &k->flows[bw_set(asked->tag)];
	__u32 place = bw_place(set, asked->tag);
	struct bw_burst_lease *lease;
	struct bw_source *source;
	__u64 now;
	int verdict;

	lease = &set->leases[place & (BW_PLACES - 1)];
	if (place < BW_PLACES && bw_is_live(lease, q->reserved.epoch) && !lease->refused &&
	    asked->bytes <= lease->left && q->tick == bpf_jiffies64() &&
	    bw_burst_fits(r, asked->queued, q->reserved.bytes, 0))
		return bw_burst_follow(r, &q->reserved, lease, asked->queued, asked->bytes);
	now = bw_advance(r, q);
	if (place >= BW_PLACES || !bw_is_live(lease, q->reserved.epoch))
		lease = bw_new_lease(set, place, asked->tag, q->reserved.epoch, &q->counts);
	source = bw_find_source(k, asked, now);
	verdict = bw_decide(r, &q->reserved, lease, source, now, asked);
	if (source)
		bw_count(source, verdict);
	return verdict;
}

/* enum bw_burst_verdict */
BW_APART int bw_ask(const struct bw_asked *asked)
{
	const struct bw_burst_rules *r = (const void *)&rules;
	int verdict = BW_BURST_TAKEN;
	struct bw_known *k;
	__u32 zero = 0;

	barrier_var(r); /* or the compiler takes the values that it sees here for final */
	k = bpf_map_lookup_elem(&known, &zero);
	if (!k || !asked)
		return verdict;
	if (!asked->segments) {
		verdict = bw_ask_unmarked(r, &queue, asked);
		__sync_fetch_and_add(verdict == BW_BURST_TAKEN ? &aside.taken : &aside.full, 1);
	} else if (bw_hold(&queue)) {
		verdict = bw_ask_plain(r, &queue, asked);
		__sync_fetch_and_add(verdict == BW_BURST_TAKEN ? &aside.busy : &aside.busy_full, 1);
	} else {
		verdict = bw_ask_marked(r, &queue, k, asked);
		queue.counts.packets[verdict & 7]++;
		bw_let_go(&queue);
	}
	return verdict;
}

#endif
