/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which backend a packet goes to: the service that it is for, the flow that it belongs to, and for
 * flows that are new the slot of the service's ring.
 */
#ifndef BALANCE_AFFINITY_H
#define BALANCE_AFFINITY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "balance_intf.h"
#include "../lib/packet.h"

#define BALANCE_SEEN_SECOND (1000000000ULL >> BALANCE_SEEN_SHIFT)
#define BALANCE_UDP_IDLE (30 * BALANCE_SEEN_SECOND)
#define BALANCE_SYN_IDLE (130 * BALANCE_SEEN_SECOND) /* SYNs are sent again for so long (tcp_syn_retries) */
#define BALANCE_TCP_IDLE (7500 * BALANCE_SEEN_SECOND) /* keepalives come every two hours */
/*
 * A FIN or RST may be forged, and a SYN after it: a connection that goes on sends something within this. A client that
 * is as quick with the same ports again makes more than 28,000 connections a second.
 */
#define BALANCE_REUSE_IDLE BALANCE_SEEN_SECOND

/* Set before loading: without it nothing of the measuring part is left. */
const volatile bool measuring;

/* A service without a port of its own: with enum BALANCE_VIP_*, in how a packet's service is passed on. */
#define BALANCE_VIP_ANY_PORT 0x4000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_SERVICE_KEYS);
	__type(key, struct balance_vip_key);
	__type(value, struct balance_vip);
} services SEC(".maps");

struct balance_ring {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_RING_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BALANCE_SERVICES);
	__type(key, __u32);
	__array(values, struct balance_ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_BACKENDS);
	__type(key, __u32);
	__type(value, struct balance_backend);
} backends SEC(".maps");

/*
 * Two tables, so that flows of which only one packet was seen (a flood's) push out each other and
 * none that has settled. An entry is found from any CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct bw_tuple);
	__type(value, struct balance_affinity);
} flows_young SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct bw_tuple);
	__type(value, struct balance_affinity);
} flows_settled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_tallies);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BALANCE_BACKENDS);
	__type(key, __u32);
	__type(value, struct balance_backend_tally);
} backend_tallies SEC(".maps");

/*
 * Flows that begin, or wait for an answer, by index: what latency will be, where it only says what it
 * was. Packets count; each census makes it right again.
 */
__s64 busy_flows[BALANCE_BACKENDS];

/*
 * The second choice is taken until then, in units of balance_affinity.seen: nothing makes busy_flows right
 * when nobody takes a census, and where flows_young pushes out flows between SYN and ACK, these must
 * go by their first choice. The loader says so again and again.
 */
__u32 choices_until;

BW_INLINE void balance_busy(__u32 index, __s64 by)
{
	__sync_fetch_and_add(&busy_flows[index & (BALANCE_BACKENDS - 1)], by);
}

/* A settled flow's packet: whether it waits now. A pure ACK says that an answer has come; UDP has none. */
BW_INLINE __u32 balance_waits(const struct balance_affinity *flow, const struct bw_packet *pkt,
			      __u32 service)
{
	__u32 flags = flow->flags & ~BALANCE_FLOW_WAITS, asks = pkt->payload ? BALANCE_FLOW_WAITS : 0;

	if (!measuring && !(service >> 16 & BALANCE_VIP_TWO_CHOICES))
		return flow->flags;
	if (pkt->tuple.proto != BW_PROTO_TCP || pkt->flags & (BW_TCP_FIN | BW_TCP_RST))
		asks = 0;
	if ((flow->flags & BALANCE_FLOW_WAITS) != asks)
		balance_busy(flow->backend, asks ? 1 : -1);
	return flags | asks;
}

BW_INLINE struct balance_tallies *balance_tallies(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tallies, &zero);
}

BW_INLINE struct balance_backend_tally *balance_backend_tally(__u32 index)
{
	return bpf_map_lookup_elem(&backend_tallies, &index);
}

BW_INLINE struct balance_backend *balance_backend(__u32 index)
{
	return bpf_map_lookup_elem(&backends, &index);
}

/* Units of balance_affinity.seen. The coarse clock costs a fifth of the precise one. */
BW_INLINE __u32 balance_seen_now(void)
{
	return bpf_ktime_get_coarse_ns() >> BALANCE_SEEN_SHIFT;
}

BW_INLINE struct balance_vip *balance_vip(const __u8 *addr, __u32 port, __u32 proto)
{
	struct balance_vip_key key __attribute__((aligned(8)));

	*(bw_word64 *)key.addr = *(const bw_word64 *)addr;
	*(bw_word64 *)(key.addr + 8) = *(const bw_word64 *)(addr + 8);
	*(bw_word32 *)&key.port = port | proto << 16;
	return bpf_map_lookup_elem(&services, &key);
}

/* The service that a tuple is for: its number, and from bit 16 on its flags; below 0: none. */
BW_INLINE int balance_service_of(const struct bw_tuple *t)
{
	const struct balance_vip *vip = balance_vip(t->dst, t->dport, t->proto);

	if (vip)
		return *(const bw_word32 *)vip;
	vip = balance_vip(t->dst, 0, t->proto);
	if (!vip)
		return -1;
	return *(const bw_word32 *)vip | BALANCE_VIP_ANY_PORT << 16;
}

BW_INLINE __u64 balance_ring_mix(__u64 h, __u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 32;
}

/* Odd multipliers; each makes another hash. */
#define BALANCE_FIRST_CHOICE 0xbf58476d1ce4e5b9ULL
#define BALANCE_SECOND_CHOICE 0x94d049bb133111ebULL

/* Without keys: it must be the same on every machine, and after every restart. */
BW_INLINE __u32 balance_ring_slot(const struct bw_tuple *t, __u32 flags, __u64 choice)
{
	const bw_word64 *w = (const bw_word64 *)t;
	__u64 h = 0xd6e8feb86659fd93ULL, ports = w[4];

	h = balance_ring_mix(h, w[0]);
	h = balance_ring_mix(h, w[1]);
	if (!(flags & BALANCE_VIP_BY_CLIENT)) {
		if (flags & BALANCE_VIP_ANY_PORT)
			ports &= ~0xffff0000ULL; /* .dport */
		h = balance_ring_mix(h, w[2]);
		h = balance_ring_mix(h, w[3]);
		h = balance_ring_mix(h, ports);
	}
	h *= choice;
	return (h >> 32) * BALANCE_RING_SLOTS >> 32;
}

/* The index that the ring has for a tuple; 0: nobody. */
BW_INLINE __u32 balance_by_ring(const struct bw_tuple *t, __u32 service, __u64 choice)
{
	__u32 number = service & 0xffff, slot = balance_ring_slot(t, service >> 16, choice), *index;
	void *ring = bpf_map_lookup_elem(&rings, &number);

	if (!ring)
		return 0;
	index = bpf_map_lookup_elem(ring, &slot);
	return index ? *index & (BALANCE_BACKENDS - 1) : 0;
}

/*
 * Where a new flow goes; 0: nowhere. Of two backends the one with fewer busy flows for its weight:
 * of many flows that come between two decisions not all go where there was least to do. Who fails
 * fast is never busy: while that is suspected of it, its own slots are all that it gets.
 */
BW_INLINE __u32 balance_choose(const struct bw_tuple *t, __u32 service, __u32 now)
{
	__u32 first = balance_by_ring(t, service, BALANCE_FIRST_CHOICE), second;
	const struct balance_backend *a, *b;
	__s64 busy_a, busy_b;

	if (!(service >> 16 & BALANCE_VIP_TWO_CHOICES) || (__s32)(choices_until - now) <= 0)
		return first;
	second = balance_by_ring(t, service, BALANCE_SECOND_CHOICE);
	a = balance_backend(first);
	b = balance_backend(second);
	if (first == second || !second || !a || !b || b->flags & BALANCE_BACKEND_DOUBTED)
		return first;
	busy_a = busy_flows[first & (BALANCE_BACKENDS - 1)];
	busy_b = busy_flows[second & (BALANCE_BACKENDS - 1)];
	if (busy_a < 0)
		busy_a = 0;
	if (busy_b < 0)
		busy_b = 0;
	return (__u64)(busy_b + 1) * a->weight < (__u64)(busy_a + 1) * b->weight ? second : first;
}

/*
 * An entry as it is at one moment. Other CPUs change it, and may give its place to another flow: what
 * belongs together is read at once, and only what does little harm there is written in place.
 */
BW_INLINE struct balance_affinity balance_read(const struct balance_affinity *a)
{
	union {
		__u64 word;
		struct balance_affinity flow;
	} entry = { .word = *(const volatile bw_word64 *)a };

	return entry.flow;
}

/* How long a flow is idle. Another CPU may have seen a packet of it after `now` was read. */
BW_INLINE __u32 balance_idle(const struct balance_affinity *a, __u32 now)
{
	__u32 idle = now - a->seen;

	return (__s32)idle < 0 ? 0 : idle;
}

/* The backend of an entry, unless it is gone and another may have its index. */
BW_INLINE struct balance_backend *balance_kept(const struct balance_affinity *a)
{
	struct balance_backend *b = balance_backend(a->backend);

	return b && b->state != BALANCE_BACKEND_VACANT && b->generation == a->generation ? b : NULL;
}

/* Whether a packet goes where its flow's entry says; `idle`: after at most so long, for SYNs. */
BW_INLINE int balance_keeps(const struct balance_affinity *a, const struct bw_packet *pkt, int syn, __u32 now,
			    __u32 idle)
{
	const struct balance_backend *b = balance_kept(a);

	if (!b)
		return 0;
	if (pkt->tuple.proto != BW_PROTO_TCP)
		return b->state != BALANCE_BACKEND_DOWN && balance_idle(a, now) <= BALANCE_UDP_IDLE;
	if (!syn)
		return 1;
	return b->state != BALANCE_BACKEND_DOWN && !(a->flags & BALANCE_FLOW_CLOSING) &&
	       balance_idle(a, now) <= idle;
}

/* Whether a flow that seems to be over may go on. */
BW_INLINE int balance_may_go_on(const struct balance_affinity *a, __u32 now)
{
	const struct balance_backend *b = balance_kept(a);

	return b && b->state != BALANCE_BACKEND_DOWN && a->flags & BALANCE_FLOW_CLOSING &&
	       balance_idle(a, now) <= BALANCE_REUSE_IDLE;
}

/* A whole entry at once: what other CPUs read is the old one or the new one. */
BW_INLINE __u64 balance_entry(__u32 index, __u32 generation, __u32 flags, __u32 now)
{
	return (__u64)now << 32 | (flags & 0xff) << 24 | (generation & 0xff) << 16 |
	       (index & 0xffff);
}

/* A packet of a flow that has settled, whose entry at `a` is `flow`. */
BW_INLINE void balance_note(struct balance_affinity *a, const struct balance_affinity *flow,
			    const struct bw_packet *pkt, __u32 service, int syn, __u32 now)
{
	struct balance_backend_tally *t = balance_backend_tally(flow->backend);
	__u32 flags;

	if (flow->seen != now)
		a->seen = now;
	if (!t || syn)
		return;
	flags = balance_waits(flow, pkt, service);
	if (flags & BALANCE_FLOW_NEW) {
		flags &= ~BALANCE_FLOW_NEW;
		t->opened++;
	}
	if (pkt->flags & (BW_TCP_FIN | BW_TCP_RST)) {
		if (!(flags & BALANCE_FLOW_CLOSING))
			t->closed++;
		flags |= BALANCE_FLOW_CLOSING;
	} else if (flags & BALANCE_FLOW_CLOSING && pkt->payload) {
		flags &= ~BALANCE_FLOW_CLOSING; /* the RST was not from the client */
		t->opened++;
	}
	if (flags != flow->flags)
		a->flags = flags;
}

/* The second packet of a flow: it has settled. */
BW_INLINE void balance_settle(__u32 index, __u32 generation, const struct bw_packet *pkt,
			      const struct bw_tuple *key, __u32 now)
{
	struct balance_backend_tally *t = balance_backend_tally(index);
	struct balance_tallies *all = balance_tallies();
	int ends = (pkt->flags & BW_TCP_FIN) != 0;
	/* a handshake's end: what it asks comes at once */
	__u32 asks = pkt->tuple.proto == BW_PROTO_TCP && !ends ? BALANCE_FLOW_WAITS : 0;
	__u64 entry = balance_entry(index, generation, ends ? BALANCE_FLOW_CLOSING : asks, now);

	if (bpf_map_update_elem(&flows_settled, key, &entry, BPF_ANY)) {
		if (all)
			all->insert_failed++;
		return;
	}
	bpf_map_delete_elem(&flows_young, key);
	if (!asks)
		balance_busy(index, -1);
	if (t) {
		t->opened++;
		t->closed += ends;
	}
}

/* What `balance_place` looks for: before Linux 6.2 its argument's memory is no key, and the stack is full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bw_tuple);
} placed SEC(".maps");

/* All but a further packet of a flow that goes on: the index of its backend; 0: nobody. */
BW_NOINLINE int balance_place(const struct bw_packet *pkt, __u32 service)
{
	struct balance_tallies *all = balance_tallies();
	struct balance_affinity *settled, *young, flow;
	const struct balance_backend *b;
	__u32 zero = 0, now, index, stays = 0;
	struct bw_tuple *key = bpf_map_lookup_elem(&placed, &zero);
	__u64 entry;
	long failed;
	int syn;

	if (!pkt || !all || !key)
		return 0;
	*key = pkt->tuple;
	now = balance_seen_now();
	syn = (pkt->flags & (BW_TCP_SYN | BW_TCP_ACK)) == BW_TCP_SYN;
	settled = bpf_map_lookup_elem(&flows_settled, key);
	if (settled) {
		flow = balance_read(settled);
		if (balance_keeps(&flow, pkt, syn, now, BALANCE_TCP_IDLE)) {
			balance_note(settled, &flow, pkt, service, syn, now);
			return flow.backend;
		}
		if (syn && balance_may_go_on(&flow, now))
			stays = flow.backend;
	}
	young = bpf_map_lookup_elem(&flows_young, key);
	if (young) {
		flow = balance_read(young);
		if (balance_keeps(&flow, pkt, syn, now, BALANCE_SYN_IDLE)) {
			if (pkt->flags & BW_TCP_RST) {
				young->flags = flow.flags | BALANCE_FLOW_CLOSING;
				if (!(flow.flags & BALANCE_FLOW_CLOSING))
					balance_busy(flow.backend, -1);
			}
			else if (!syn)
				balance_settle(flow.backend, flow.generation, pkt, key, now);
			else
				young->seen = now;
			return flow.backend;
		}
	}
	if (pkt->tuple.proto == BW_PROTO_TCP && !syn) {
		all->unknown_flow++;
		index = balance_by_ring(&pkt->tuple, service, BALANCE_FIRST_CHOICE);
	} else {
		index = stays ?: balance_choose(&pkt->tuple, service, now);
	}
	b = balance_backend(index);
	if (!index || !b || b->state == BALANCE_BACKEND_VACANT)
		return 0;
	entry = balance_entry(index, b->generation,
			      settled ? BALANCE_FLOW_NEW | BALANCE_FLOW_WAITS : BALANCE_FLOW_NEW,
			      now);
	if (settled)
		failed = bpf_map_update_elem(&flows_settled, key, &entry, BPF_ANY);
	else if (pkt->flags & BW_TCP_RST && !young)
		return index; /* nothing will follow */
	else
		failed = bpf_map_update_elem(&flows_young, key, &entry, BPF_ANY);
	if (failed)
		all->insert_failed++;
	else
		balance_busy(index, 1);
	return index;
}

/* The index of the packet's backend; 0: nobody. */
BW_INLINE __u32 balance_route(const struct bw_packet *pkt, __u32 service)
{
	struct balance_affinity *a, flow;
	const struct balance_backend *b;
	__u32 now, flags;

	if (pkt->flags & (BW_TCP_SYN | BW_TCP_FIN | BW_TCP_RST))
		return balance_place(pkt, service);
	a = bpf_map_lookup_elem(&flows_settled, &pkt->tuple);
	if (!a)
		return balance_place(pkt, service);
	flow = balance_read(a);
	if (flow.flags & ~BALANCE_FLOW_WAITS)
		return balance_place(pkt, service);
	b = balance_kept(&flow);
	if (!b)
		return balance_place(pkt, service);
	now = balance_seen_now();
	if (pkt->tuple.proto != BW_PROTO_TCP &&
	    (b->state == BALANCE_BACKEND_DOWN || balance_idle(&flow, now) > BALANCE_UDP_IDLE))
		return balance_place(pkt, service);
	if (flow.seen != now)
		a->seen = now; /* the line is shared: it is written as seldom as can be */
	flags = balance_waits(&flow, pkt, service);
	if (flags != flow.flags)
		a->flags = flags;
	return flow.backend;
}

/* Where an entry sends; 0: nowhere any more. */
BW_INLINE __u32 balance_goes_to(const struct balance_affinity *a)
{
	struct balance_affinity flow;

	if (!a)
		return 0;
	flow = balance_read(a);
	return balance_kept(&flow) ? flow.backend : 0;
}

/* Where a connection goes, without a packet of it; 0: nobody. */
BW_INLINE __u32 balance_route_of(const struct bw_tuple *t, __u32 service)
{
	__u32 index = balance_goes_to(bpf_map_lookup_elem(&flows_settled, t));

	if (!index)
		index = balance_goes_to(bpf_map_lookup_elem(&flows_young, t));
	return index ? index : balance_by_ring(t, service, BALANCE_FIRST_CHOICE);
}

#endif
