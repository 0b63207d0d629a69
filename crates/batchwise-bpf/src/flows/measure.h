/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Measuring the packets that clients send: from a parsed packet into its flow's slot, and the sweep
 * over flows from which no packet comes.
 */
#ifndef BW_MEASURE_H
#define BW_MEASURE_H

#include "flows.h"

/* Buckets that one run of the sweep looks at: events are taken out in between. */
#define BW_SWEEP_BUCKETS 256

/* Set before loading. */
const volatile __u32 udp_acks;
const volatile __u64 forget_ns;

/* The loader learns who a flow is at its first gap. */
BW_INLINE void bw_tell_born(struct bw_slot *s, __u64 tag, const struct bw_tuple *tuple,
			    struct bw_counters *c)
{
	struct bw_born *b = bpf_ringbuf_reserve(&events, sizeof(*b), 0);

	if (!b) {
		c->lost_events++;
		return; /* the next packet tries again */
	}
	b->tag = tag;
	b->tuple = *tuple;
	bpf_ringbuf_submit(b, BPF_RB_NO_WAKEUP);
	s->gaps.flags |= BW_SLOT_BORN;
	c->born++;
}

/* A packet with payload enters its flow's slot, which is locked. */
BW_INLINE void bw_count(struct bw_slot *s, const struct bw_packet *pkt, __u64 tag, __u64 now,
			struct bw_counters *c)
{
	const struct bw_gaps_params *p = bw_params();
	struct bw_gaps *g = &s->gaps;
	int known = g->last != 0;

	if (known && bw_gaps_due(g, p, now)) {
		if (g->flags & BW_SLOT_OPEN)
			bw_close(s, tag, &pkt->tuple, now, 0);
		bw_gaps_open(g, now);
		g->flags &= ~BW_SLOT_OPEN;
	}
	if (pkt->tuple.proto == BW_PROTO_TCP)
		bw_gaps_tcp(g, &s->stream, p, now, pkt->seq, pkt->payload, pkt->ack, pkt->length);
	else
		bw_gaps_datagram(g, p, now, pkt->length);
	if (!known)
		return;
	g->flags |= BW_SLOT_OPEN;
	if (!(g->flags & BW_SLOT_BORN))
		bw_tell_born(s, tag, &pkt->tuple, c);
}

/*
 * A packet with payload: enum bw_fate. This and the next are verified on their own, not again for
 * each way in which a packet may have been parsed.
 */
BW_APART int bw_measure(const struct bw_packet *pkt)
{
	struct bw_counters *c = bw_counters();
	struct bw_position at;
	__u64 now, tag;
	int found;

	if (!pkt || !c)
		return BW_FATE_OTHER;
	now = bpf_ktime_get_ns(); /* before the table: it waits for loads before it */
	tag = bw_tag(&pkt->tuple);
	found = bw_find(tag, &at);
	if (!found)
		found = bw_insert(tag, now, c, &at) ?: -1;
	if (found < 0)
		return BW_FATE_CONTENDED;
	bw_count(at.slot, pkt, tag, now, c);
	if (pkt->flags & BW_TCP_FIN)
		bw_end(&at, tag, &pkt->tuple, now);
	else
		bw_unlock(at.slot, tag >> 32);
	return BW_FATE_MEASURED;
}

/* A TCP segment that has no payload, or begins a connection anew: only flows that are there care. */
BW_APART int bw_signal(const struct bw_packet *pkt)
{
	struct bw_position at;
	__u64 now, tag;

	int found;

	if (!pkt)
		return BW_FATE_ACK;
	now = bpf_ktime_get_ns();
	tag = bw_tag(&pkt->tuple);
	found = bw_find(tag, &at);
	if (found != 1)
		return found < 0 ? BW_FATE_CONTENDED : BW_FATE_ACK;
	if (pkt->flags & (BW_TCP_SYN | BW_TCP_FIN | BW_TCP_RST)) {
		bw_end(&at, tag, &pkt->tuple, now);
	} else {
		bw_gaps_tcp_ack(&at.slot->gaps, &at.slot->stream, now, pkt->ack);
		bw_unlock(at.slot, tag >> 32);
	}
	return BW_FATE_ACK;
}

/* A packet that a client sent: enum bw_fate. */
BW_INLINE int bw_see(const struct bw_packet *pkt)
{
	if (pkt->tuple.proto != BW_PROTO_TCP)
		return pkt->payload <= udp_acks ? BW_FATE_ACK : bw_measure(pkt);
	if ((pkt->flags & (BW_TCP_SYN | BW_TCP_ACK)) == (BW_TCP_SYN | BW_TCP_ACK))
		return BW_FATE_OTHER; /* the server's */
	if (!pkt->payload)
		return bw_signal(pkt);
	if (pkt->flags & BW_TCP_SYN)
		bw_signal(pkt);
	return bw_measure(pkt);
}

BW_INLINE void bw_tally(struct bw_counters *c, __u64 fate)
{
	barrier_var(fate); /* one register for the test and the index */
	if (fate < BW_FATES)
		c->fate[fate]++;
}

/* Looks at one flow: 1 while it lives. `all`: even if it is not idle. */
BW_APART int bw_sweep_slot(struct bw_bucket *b, __u32 way, __u64 now, __u32 all)
{
	struct bw_position at = { .bucket = b, .way = way };
	struct bw_slot *s;
	__s64 idle;
	__u32 rest;
	__u64 tag;
	int lives;

	if (!b || way >= BW_WAYS)
		return 0;
	s = at.slot = &b->slot[way];
	idle = now - s->gaps.last;
	lives = idle < (__s64)forget_ns;
	if (lives && !(s->gaps.flags & BW_SLOT_OPEN))
		return 1;
	if (idle < (__s64)bw_params()->idle_ns && !all)
		return 1;
	rest = bw_lock(s);
	if (!rest)
		return 1; /* not idle after all */
	tag = (__u64)rest << 32 | b->tag[way];
	if (now - s->gaps.last < (__u64)idle && !all) {
		lives = 1; /* a packet came, or another flow */
	} else if (lives) {
		bw_close(s, tag, NULL, now, 0);
		bw_gaps_open(&s->gaps, now);
		s->gaps.flags &= ~BW_SLOT_OPEN;
	} else {
		bw_end(&at, tag, NULL, now);
		return 0;
	}
	bw_unlock(s, rest);
	return lives;
}

/* How many flows live in a bucket; -1 behind the last one. */
BW_APART int bw_sweep_bucket(__u32 index, __u64 now, __u32 all)
{
	struct bw_bucket *b = bpf_map_lookup_elem(&flows, &index);
	int live = 0;
	__u32 way;

	if (!b)
		return -1;
	for (way = 0; way < BW_WAYS; way++)
		if (b->tag[way])
			live += bw_sweep_slot(b, way, now, all);
	return live;
}

/* Run by the loader: closes the epochs of idle flows, or all. */
SEC("syscall")
int bw_sweep(struct bw_sweep *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 i, live = 0;
	int found;

	for (i = 0; i < BW_SWEEP_BUCKETS; i++) {
		found = bw_sweep_bucket(ctx->bucket + i, now, ctx->all);
		if (found < 0)
			break;
		live += found;
	}
	ctx->bucket += i;
	ctx->live = live;
	return 0;
}

#endif
