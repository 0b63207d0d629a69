/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a router asks before a packet enters its queue: the sources and the bursts that are known, what is
 * reserved, and the decision. For both queues of this folder, the kernel's and our own.
 */
#ifndef BURST_ADMISSION_H
#define BURST_ADMISSION_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "../flows/tag.h"
#include "../lib/admit.h"
#include "burst_intf.h"

/* Set before loading. */
const volatile struct burst_rules rules;
const volatile __u32 packet_bytes; /* the queue is limited in packets, which count as so many bytes; 0: in bytes */
const volatile __u8 low;	   /* bits that the code points of marks share */

/* By hashes, see burst_set(). Only who holds the queue looks at them. */
struct burst_known {
	struct burst_source sources[BURST_SOURCES];
	struct burst_flow_set flows[BURST_SOURCES / BURST_PLACES];
};

struct burst_queue {
	__u32 held; /* by a CPU, see burst_lock() */
	__u32 unused;
	__u64 tick; /* jiffies at the last look at the time */
	struct burst_reserved reserved;
	struct burst_admit_counts counts;
};

#define BURST_TRIES 256 /* to hold the queue: about a microsecond */

/* Each is a map of its own: the loader reads the same ones of two objects. */
struct burst_queue queue SEC(".data.queue");
struct burst_admit_aside aside SEC(".data.aside");
/* The longest that the queue was found, bytes; the agent sets it back. */
__u32 highest SEC(".data.highest");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst_known);
} known SEC(".maps");

BW_INLINE void burst_note_length(__u32 queued)
{
	if (highest < queued)
		highest = queued;
}

struct burst_arrival {
	__u32 bytes;	/* of the packet, in the queue */
	__u32 segment;	/* of these: a segment, if it is a GSO buffer */
	__u32 segments; /* what its mark says; 0: no mark */
	__u32 queued;	/* bytes */
	__u64 tag;	/* of its flow */
	__u8 source[16] __attribute__((aligned(8))); /* IPv4 as IPv4-mapped IPv6 */
};

BW_INLINE __u64 burst_source_hash(const struct burst_arrival *arrival)
{
	const bw_word64 *words = (const bw_word64 *)arrival->source;

	return flow_finish(flow_mix(flow_mix(hash_keys[0], words[0]), words[1]));
}

/* Where the places of a hash are. */
BW_INLINE __u32 burst_set(__u64 hash)
{
	return hash & (BURST_SOURCES / BURST_PLACES - 1);
}

/* 1 or 0, without a branch: the verifier would follow each of every place. */
BW_INLINE __u64 burst_is_zero(__u64 value)
{
	barrier_var(value);
	return (~value & (value - 1)) >> 63;
}

BW_INLINE int burst_is_live(const struct burst_lease *lease, __u64 epoch)
{
	return lease->left && lease->epoch >= epoch;
}

/* Where the flow's lease is, if it has one; BURST_PLACES: nowhere. */
BW_INLINE __u32 burst_place(const struct burst_flow_set *set, __u64 tag)
{
	__u32 place = BURST_PLACES, i;

#pragma unroll
	for (i = 0; i < BURST_PLACES; i++)
		place -= burst_is_zero(set->tags[i] ^ tag) * (BURST_PLACES - i);
	return place;
}

/* A lease of which nothing is left, in the flow's place or where one is over; NULL: there is none. */
BW_INLINE struct burst_lease *burst_new_lease(struct burst_flow_set *set, __u32 place, __u64 tag,
					      __u64 epoch,
					      struct burst_admit_counts *count)
{
	struct burst_lease *lease;
	__u32 over = 0, i;

	if (place >= BURST_PLACES) {
#pragma unroll
		for (i = 0; i < BURST_PLACES; i++)
			over |= (burst_is_zero(set->leases[i].left) | bw_less(set->leases[i].epoch, epoch))
				<< i;
		if (!over)
			return NULL;
		place = bw_msb(over);
	}
	place &= BURST_PLACES - 1;
	lease = &set->leases[place];
	count->lost += lease->left && !lease->refused;
	set->tags[place] = tag;
	lease->left = 0;
	return lease;
}

/* The source's place, or that of the source whose credit is full the longest; NULL: none is full. */
BW_INLINE struct burst_source *burst_find_source(struct burst_known *k,
						 const struct burst_arrival *arrival, __u64 now)
{
	const bw_word64 *a = (const bw_word64 *)arrival->source, *b;
	__u64 oldest = now + 1, place = BURST_PLACES, less;
	__u32 set = burst_set(burst_source_hash(arrival)) * BURST_PLACES, known = 0, i;
	struct burst_source *source;

#pragma unroll
	for (i = 0; i < BURST_PLACES; i++) {
		source = &k->sources[(set + i) & (BURST_SOURCES - 1)];
		b = (const bw_word64 *)source->addr;
		known |= burst_is_zero((a[0] ^ b[0]) | (a[1] ^ b[1])) << i;
		less = -bw_less(source->credit.full_at, oldest);
		oldest ^= (oldest ^ source->credit.full_at) & less;
		place ^= (place ^ i) & less;
	}
	if (known)
		return &k->sources[(set + bw_msb(known)) & (BURST_SOURCES - 1)];
	if (place == BURST_PLACES)
		return NULL;
	source = &k->sources[(set + place) & (BURST_SOURCES - 1)];
	__builtin_memset(source, 0, sizeof(*source));
	__builtin_memcpy(source->addr, arrival->source, sizeof(source->addr));
	return source;
}

BW_INLINE void burst_count(struct burst_source *source, int verdict)
{
	source->admitted += verdict == BURST_ADMITTED;
	source->refused += verdict == BURST_REFUSED;
	source->ignored += verdict == BURST_TAKEN;
	source->dropped += verdict > BURST_LAST;
}

/* Decides about a packet. A GSO buffer begins a burst by its first segment, and the others follow that. */
BW_INLINE int burst_decide_buffer(const struct burst_rules *r, struct burst_reserved *reserved,
				  struct burst_lease *lease, struct burst_source *source, __u64 now,
				  const struct burst_arrival *arrival)
{
	struct burst_packet packet = { .bytes = arrival->bytes, .segments = arrival->segments };
	int verdict;

	if (lease && !lease->left)
		packet.bytes = arrival->segment;
	verdict = burst_decide(r, reserved, lease, source ? &source->credit : NULL, now,
			       arrival->queued, &packet);
	if (!lease || packet.bytes == arrival->bytes)
		return verdict;
	if (verdict == BURST_ADMITTED || verdict == BURST_REFUSED)
		burst_follow(r, reserved, lease, arrival->queued, arrival->bytes - packet.bytes);
	else if (!burst_fits(r, arrival->queued, reserved->bytes, arrival->bytes))
		verdict = BURST_FULL;
	return verdict;
}

/*
 * Instead of bpf_spin_lock(), which costs 67 ns: what asks runs with softirqs off, so interrupts can stay on. -1: another
 * CPU holds the queue for longer than a decision takes. It may have lost its CPU (a virtual machine's, or to
 * another task under PREEMPT_RT), so nobody waits for it to the end.
 */
BW_INLINE int burst_lock(struct burst_queue *q)
{
	int i;

	for (i = 0; i < BURST_TRIES; i++)
		if (!bw_load(&q->held) && !__sync_lock_test_and_set(&q->held, 1))
			return 0;
	return -1;
}

BW_INLINE void burst_unlock(struct burst_queue *q)
{
	bw_store(&q->held, 0);
}

/* The time; what was reserved and not used until now is given back. */
BW_INLINE __u64 burst_advance_queue(const struct burst_rules *r, struct burst_queue *q)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 reserved = q->reserved.bytes;

	q->tick = bpf_jiffies64();
	burst_advance(&q->reserved, now >> r->epoch_shift);
	q->counts.lost_bytes += reserved - q->reserved.bytes;
	return now;
}

/* Behind what is reserved, without holding the queue. */
BW_INLINE int burst_admit_behind(const struct burst_rules *r, struct burst_queue *q,
				 const struct burst_arrival *arrival)
{
	return burst_fits(r, arrival->queued, bw_load(&q->reserved.bytes), arrival->bytes) ?
		       BURST_TAKEN :
		       BURST_FULL;
}

/* Without a mark. What fits behind all that was ever promised needs neither the time nor the queue alone. */
BW_INLINE int burst_admit_unmarked(const struct burst_rules *r, struct burst_queue *q,
				   const struct burst_arrival *arrival)
{
	int verdict = burst_admit_behind(r, q, arrival);

	if (verdict == BURST_TAKEN || !bw_load(&q->reserved.bytes) || burst_lock(q))
		return verdict;
	burst_advance_queue(r, q);
	burst_unlock(q);
	return burst_admit_behind(r, q, arrival);
}

/*
 * With a mark. What was promised, and has room, needs neither the time nor the source, until the next tick of
 * jiffies: so much longer may a lease live.
 */
BW_INLINE int burst_admit_marked(const struct burst_rules *r, struct burst_queue *q, struct burst_known *k,
				 const struct burst_arrival *arrival)
{
	struct burst_flow_set *set = &k->flows[burst_set(arrival->tag)];
	__u32 place = burst_place(set, arrival->tag);
	struct burst_lease *lease;
	struct burst_source *source;
	__u64 now;
	int verdict;

	lease = &set->leases[place & (BURST_PLACES - 1)];
	if (place < BURST_PLACES && burst_is_live(lease, q->reserved.epoch) && !lease->refused &&
	    arrival->bytes <= lease->left && q->tick == bpf_jiffies64() &&
	    burst_fits(r, arrival->queued, q->reserved.bytes, 0))
		return burst_follow(r, &q->reserved, lease, arrival->queued, arrival->bytes);
	now = burst_advance_queue(r, q);
	if (place >= BURST_PLACES || !burst_is_live(lease, q->reserved.epoch))
		lease = burst_new_lease(set, place, arrival->tag, q->reserved.epoch, &q->counts);
	source = burst_find_source(k, arrival, now);
	verdict = burst_decide_buffer(r, &q->reserved, lease, source, now, arrival);
	if (source)
		burst_count(source, verdict);
	return verdict;
}

/* enum burst_verdict */
BW_NOINLINE int burst_admit_packet(const struct burst_arrival *arrival)
{
	const struct burst_rules *r = (const void *)&rules;
	int verdict = BURST_TAKEN;
	struct burst_known *k;
	__u32 zero = 0;

	barrier_var(r); /* or the compiler takes the values that it sees here for final */
	k = bpf_map_lookup_elem(&known, &zero);
	if (!k || !arrival)
		return verdict;
	if (!arrival->segments) {
		verdict = burst_admit_unmarked(r, &queue, arrival);
		__sync_fetch_and_add(verdict == BURST_TAKEN ? &aside.taken : &aside.full, 1);
	} else if (burst_lock(&queue)) {
		verdict = burst_admit_behind(r, &queue, arrival);
		__sync_fetch_and_add(verdict == BURST_TAKEN ? &aside.busy : &aside.busy_full, 1);
	} else {
		verdict = burst_admit_marked(r, &queue, k, arrival);
		queue.counts.packets[verdict & 7]++;
		burst_unlock(&queue);
	}
	return verdict;
}

#endif
