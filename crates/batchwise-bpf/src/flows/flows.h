/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table of flows: finding and giving slots, and closing epochs. One CPU at a time works on a
 * slot; another that comes meanwhile goes on its way and is counted.
 */
#ifndef FLOWS_H
#define FLOWS_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flows_intf.h"
#include "tag.h"

/*
 * Below so many flows in its first bucket a flow does not look at the second. With 12, one table of
 * 65,536 in 250 pushes a flow out before as many live as it is made for; with 10, one in 8,000
 * (simulated).
 */
#define FLOW_AMPLE 10

/* Set before loading. */
const volatile struct flow_gaps_params gaps_params;
const volatile __u32 n_buckets = 1;

/* The loader's own memory has it, too: that makes buckets begin on cache lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_bucket);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* A flow's table position, once found. */
struct flow_position {
	struct flow_bucket *bucket;
	struct flow_slot *slot;
	__u32 way;
};

BW_INLINE const struct flow_gaps_params *flow_params(void)
{
	const struct flow_gaps_params *p = (const void *)&gaps_params;

	barrier_var(p); /* or the compiler takes the values that it sees here for final */
	return p;
}

BW_INLINE struct flow_counters *flow_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

BW_INLINE struct flow_bucket *flow_bucket(__u64 tag, int second)
{
	__u32 i;

	if (second)
		tag *= 0xd6e8feb86659fd93ULL;
	i = (tag >> 32) * n_buckets >> 32;
	return bpf_map_lookup_elem(&flows, &i);
}

/*
 * The lowest of several ways that have the tag, plus FLOW_WAYS: two CPUs inserted the flow at once. The other
 * slot is then nobody's, and is forgotten when it has been idle for long.
 */
BW_NOINLINE int flow_lowest(const struct flow_bucket *b, __u32 tag)
{
	if (!b)
		return 0;
	for (int i = 0; i < FLOW_WAYS; i++)
		if (b->tag[i] == tag)
			return FLOW_WAYS + i;
	return 0;
}

/*
 * Which way of the bucket has the tag, plus FLOW_WAYS; 0: none. Without branches: the processor would
 * mispredict them, and the verifier follow each.
 */
BW_INLINE __u32 flow_way(const struct flow_bucket *b, __u32 tag)
{
	__u64 d;
	__u32 way = 0, i;

#pragma unroll
	for (i = 0; i < FLOW_WAYS; i++) {
		d = b->tag[i] ^ tag;
		barrier_var(d);
		way += (d - 1) >> 59 & (FLOW_WAYS | i); /* 31 of 0 - 1, else 0 */
	}
	return way < 2 * FLOW_WAYS ? way : flow_lowest(b, tag);
}

/* What the slot's `rest` was; 0: another CPU has it, or nobody. */
BW_INLINE __u32 flow_lock(struct flow_slot *s)
{
	return __sync_lock_test_and_set(&s->rest, 0);
}

BW_INLINE void flow_unlock(struct flow_slot *s, __u32 rest)
{
	bw_store(&s->rest, rest);
}

/* 1: found, and locked; 0: not there; -1: another CPU has it. */
BW_INLINE int flow_find(__u64 tag, struct flow_position *at)
{
	__u32 way, rest;

	at->bucket = flow_bucket(tag, 0);
	if (!at->bucket)
		return 0;
	way = flow_way(at->bucket, tag);
	if (!way) {
		at->bucket = flow_bucket(tag, 1);
		if (!at->bucket)
			return 0;
		way = flow_way(at->bucket, tag);
		if (!way)
			return 0;
	}
	at->way = way & (FLOW_WAYS - 1);
	at->slot = &at->bucket->slot[at->way];
	rest = flow_lock(at->slot);
	if (rest == tag >> 32)
		return 1;
	if (!rest)
		return -1;
	flow_unlock(at->slot, rest); /* another flow's */
	return 0;
}

/*
 * How many ways of the bucket are taken; times 256, plus a free one. -1: one of them is the tag's, which
 * another CPU has just inserted. Verified on its own.
 */
BW_NOINLINE int flow_taken(struct flow_bucket *b, __u32 tag)
{
	__u32 taken = 0, vacant = 0, i;

	if (!b)
		return 0;
	for (i = 0; i < FLOW_WAYS; i++) {
		if (b->tag[i] == tag)
			return -1;
		if (b->tag[i])
			taken++;
		else
			vacant = i;
	}
	return taken << 8 | vacant;
}

/*
 * The way to give to a new flow: the least recently used. Flows that never showed a gap go first,
 * so that a scan displaces the scan.
 */
BW_NOINLINE int flow_victim(struct flow_bucket *b)
{
	__u64 least = ~0ULL, age;
	__u32 way = 0, i;

	if (!b)
		return 0;
	for (i = 0; i < FLOW_WAYS; i++) {
		age = b->slot[i].gaps.last;
		if (b->slot[i].gaps.flags & FLOW_SLOT_BORN)
			age |= 1ULL << 63;
		if (age < least) {
			least = age;
			way = i;
		}
	}
	return way;
}

/*
 * Tells the loader what an epoch comes to; `tuple` may be NULL. Verified on its own, since the
 * estimate is long and there are many callers. 0, or -1 when there was no room.
 */
BW_NOINLINE int flow_close(struct flow_slot *s, __u64 tag, const struct bw_tuple *tuple, __u64 now,
			__u32 gone)
{
	struct flow_counters *c = flow_counters();
	struct flow_epoch *e;

	if (!s || !c)
		return -1;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost_events++;
		return -1;
	}
	e->tag = tag;
	if (tuple)
		e->tuple = *tuple;
	else
		__builtin_memset(&e->tuple, 0, sizeof(e->tuple));
	e->end = now;
	e->gaps = s->gaps;
	e->gone = gone;
	e->reserved = 0;
	flow_gaps_estimate(&s->gaps, flow_params(), &e->est);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A locked slot's flow is no more. One that the loader knows of is said to be gone in any case. */
BW_INLINE void flow_end(struct flow_position *at, __u64 tag, const struct bw_tuple *tuple, __u64 now)
{
	if (at->slot->gaps.flags & (FLOW_SLOT_OPEN | FLOW_SLOT_BORN))
		flow_close(at->slot, tag, tuple, now, 1);
	at->slot->gaps.flags = 0;
	bw_store(&at->bucket->tag[at->way], 0); /* from here on it may be taken */
}

/* A slot for a new flow, locked; 0 when another CPU has it. */
BW_INLINE int flow_insert(__u64 tag, __u64 now, struct flow_counters *c, struct flow_position *at)
{
	struct flow_bucket *first = flow_bucket(tag, 0), *second = flow_bucket(tag, 1);
	int taken, other;
	__u32 rest;

	if (!first || !second)
		return 0;
	at->bucket = first;
	taken = flow_taken(first, tag);
	if (taken >> 8 >= FLOW_AMPLE) {
		other = flow_taken(second, tag);
		if (other >> 8 < taken >> 8) {
			at->bucket = second;
			taken = other;
		}
	}
	if (taken < 0)
		return 0;
	if (taken >> 8 < FLOW_WAYS) {
		at->way = taken & (FLOW_WAYS - 1);
		at->slot = &at->bucket->slot[at->way];
		if (__sync_val_compare_and_swap(&at->bucket->tag[at->way], 0, (__u32)tag))
			return 0;
	} else {
		at->way = flow_victim(at->bucket) & (FLOW_WAYS - 1);
		at->slot = &at->bucket->slot[at->way];
		rest = flow_lock(at->slot);
		if (!rest)
			return 0;
		c->evicted++;
		if (at->slot->gaps.flags & (FLOW_SLOT_OPEN | FLOW_SLOT_BORN))
			flow_close(at->slot, (__u64)rest << 32 | at->bucket->tag[at->way], NULL, now, 1);
		at->bucket->tag[at->way] = tag;
	}
	__builtin_memset(&at->slot->gaps, 0, sizeof(at->slot->gaps));
	__builtin_memset(&at->slot->stream, 0, sizeof(at->slot->stream));
	flow_gaps_open(&at->slot->gaps, now); /* .last is 0: no packet yet */
	return 1;
}

#endif
