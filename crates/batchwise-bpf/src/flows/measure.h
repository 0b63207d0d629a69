/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Measuring the packets that clients send: from a parsed packet into its flow's slot, and the sweep
 * over flows from which no packet comes.
 */
#ifndef FLOW_MEASURE_H
#define FLOW_MEASURE_H

#include "flows.h"

/* Buckets that one run of the sweep looks at: events are taken out in between. */
#define FLOW_SWEEP_BUCKETS 256

/* Set before loading. */
const volatile __u32 udp_acks;
const volatile __u64 forget_ns;

/* The loader learns who a flow is at its first gap. */
BW_INLINE void flow_report_born(struct flow_slot *s, __u64 tag, const struct bw_tuple *tuple,
				struct flow_counters *c)
{
	struct flow_born *b = bpf_ringbuf_reserve(&events, sizeof(*b), 0);

	if (!b) {
		c->lost_events++;
		return; /* the next packet tries again */
	}
	b->tag = tag;
	b->tuple = *tuple;
	bpf_ringbuf_submit(b, BPF_RB_NO_WAKEUP);
	s->gaps.flags |= FLOW_SLOT_BORN;
	c->born++;
}

/* A packet with payload enters its flow's slot, which is locked. */
BW_INLINE void flow_count(struct flow_slot *s, const struct bw_packet *pkt, __u64 tag, __u64 now,
			  struct flow_counters *c)
{
	const struct flow_gaps_params *p = flow_params();
	struct flow_gaps *g = &s->gaps;
	int known = g->last != 0;

	if (known && flow_gaps_due(g, p, now)) {
		if (g->flags & FLOW_SLOT_OPEN)
			flow_close(s, tag, &pkt->tuple, now, 0);
		flow_gaps_open(g, now);
		g->flags &= ~FLOW_SLOT_OPEN;
	}
	if (pkt->tuple.proto == BW_PROTO_TCP)
		flow_gaps_tcp(g, &s->stream, p, now, pkt->seq, pkt->payload, pkt->ack, pkt->length);
	else
		flow_gaps_datagram(g, p, now, pkt->length);
	if (!known)
		return;
	g->flags |= FLOW_SLOT_OPEN;
	if (!(g->flags & FLOW_SLOT_BORN))
		flow_report_born(s, tag, &pkt->tuple, c);
}

/*
 * A packet with payload: enum flow_fate. This and the next are verified on their own, not again for
 * each way in which a packet may have been parsed.
 */
BW_NOINLINE int flow_measure(const struct bw_packet *pkt)
{
	struct flow_counters *c = flow_counters();
	struct flow_position at;
	__u64 now, tag;
	int found;

	if (!pkt || !c)
		return FLOW_FATE_OTHER;
	now = bpf_ktime_get_ns(); /* before the table: it waits for loads before it */
	tag = flow_tag(&pkt->tuple);
	found = flow_find(tag, &at);
	if (!found)
		found = flow_insert(tag, now, c, &at) ?: -1;
	if (found < 0)
		return FLOW_FATE_CONTENDED;
	flow_count(at.slot, pkt, tag, now, c);
	if (pkt->flags & BW_TCP_FIN)
		flow_end(&at, tag, &pkt->tuple, now);
	else
		flow_unlock(at.slot, tag >> 32);
	return FLOW_FATE_MEASURED;
}

/* A TCP segment that has no payload, or begins a connection anew: only flows that are there care. */
BW_NOINLINE int flow_signal(const struct bw_packet *pkt)
{
	struct flow_position at;
	__u64 now, tag;

	int found;

	if (!pkt)
		return FLOW_FATE_ACK;
	now = bpf_ktime_get_ns();
	tag = flow_tag(&pkt->tuple);
	found = flow_find(tag, &at);
	if (found != 1)
		return found < 0 ? FLOW_FATE_CONTENDED : FLOW_FATE_ACK;
	if (pkt->flags & (BW_TCP_SYN | BW_TCP_FIN | BW_TCP_RST)) {
		flow_end(&at, tag, &pkt->tuple, now);
	} else {
		flow_gaps_tcp_ack(&at.slot->gaps, &at.slot->stream, now, pkt->ack);
		flow_unlock(at.slot, tag >> 32);
	}
	return FLOW_FATE_ACK;
}

/* A packet that a client sent: enum flow_fate. */
BW_INLINE int flow_observe(const struct bw_packet *pkt)
{
	if (pkt->tuple.proto != BW_PROTO_TCP)
		return pkt->payload <= udp_acks ? FLOW_FATE_ACK : flow_measure(pkt);
	if ((pkt->flags & (BW_TCP_SYN | BW_TCP_ACK)) == (BW_TCP_SYN | BW_TCP_ACK))
		return FLOW_FATE_OTHER; /* the server's */
	if (!pkt->payload)
		return flow_signal(pkt);
	if (pkt->flags & BW_TCP_SYN)
		flow_signal(pkt);
	return flow_measure(pkt);
}

BW_INLINE void flow_tally(struct flow_counters *c, __u64 fate)
{
	barrier_var(fate); /* one register for the test and the index */
	if (fate < FLOW_FATES)
		c->fate[fate]++;
}

/* Looks at one flow: 1 while it lives. `all`: even if it is not idle. */
BW_NOINLINE int flow_sweep_slot(struct flow_bucket *b, __u32 way, __u64 now, __u32 all)
{
	struct flow_position at = { .bucket = b, .way = way };
	struct flow_slot *s;
	__s64 idle;
	__u32 rest;
	__u64 tag;
	int lives;

	if (!b || way >= FLOW_WAYS)
		return 0;
	s = at.slot = &b->slot[way];
	idle = now - s->gaps.last;
	lives = idle < (__s64)forget_ns;
	if (lives && !(s->gaps.flags & FLOW_SLOT_OPEN))
		return 1;
	if (idle < (__s64)flow_params()->idle_ns && !all)
		return 1;
	rest = flow_lock(s);
	if (!rest)
		return 1; /* not idle after all */
	tag = (__u64)rest << 32 | b->tag[way];
	if (now - s->gaps.last < (__u64)idle && !all) {
		lives = 1; /* a packet came, or another flow */
	} else if (lives) {
		flow_close(s, tag, NULL, now, 0);
		flow_gaps_open(&s->gaps, now);
		s->gaps.flags &= ~FLOW_SLOT_OPEN;
	} else {
		flow_end(&at, tag, NULL, now);
		return 0;
	}
	flow_unlock(s, rest);
	return lives;
}

/* How many flows live in a bucket; -1 behind the last one. */
BW_NOINLINE int flow_sweep_bucket(__u32 index, __u64 now, __u32 all)
{
	struct flow_bucket *b = bpf_map_lookup_elem(&flows, &index);
	int live = 0;
	__u32 way;

	if (!b)
		return -1;
	for (way = 0; way < FLOW_WAYS; way++)
		if (b->tag[way])
			live += flow_sweep_slot(b, way, now, all);
	return live;
}

/* Run by the loader: closes the epochs of idle flows, or all. */
SEC("syscall")
int flow_sweep(struct flow_sweep *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 i, live = 0;
	int found;

	for (i = 0; i < FLOW_SWEEP_BUCKETS; i++) {
		found = flow_sweep_bucket(ctx->bucket + i, now, ctx->all);
		if (found < 0)
			break;
		live += found;
	}
	ctx->bucket += i;
	ctx->live = live;
	return 0;
}

#endif
