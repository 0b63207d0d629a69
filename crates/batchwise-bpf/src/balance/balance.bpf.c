// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The load balancer's data path: each packet to a service's address goes to the backend of its
 * connection, and is measured on its way. Everything else passes as it came.
 */
#include "../flows/measure.h"
#include "../lib/frame.h"
#include "icmp.h"
#include "census.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* How many interfaces packets are to come for; 0: that is not looked at. */
const volatile __u32 n_own_macs;
/* Theirs, the first byte the lowest; the loader follows changes. */
__u64 own_macs[BALANCE_INTERFACES];

/*
 * Whether a frame is for one of our interfaces. Others come where a switch floods or an interface is
 * promiscuous: two load balancers on one segment would hand them to each other for ever.
 */
BW_INLINE int balance_is_ours(const __u8 *eth)
{
	__u64 to = *(const bw_wire32 *)eth | (__u64)*(const bw_wire16 *)(eth + 4) << 32;
	__u32 n = n_own_macs, i;

	for (i = 0; i < n && i < BALANCE_INTERFACES; i++) {
		if (own_macs[i] == to)
			return 1;
	}
	return !n;
}

/* What is no TCP or UDP packet with ports, as `parsed` says. */
BW_NOINLINE int balance_exception(struct xdp_md *ctx, int parsed)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *ip = data + BW_ETH_HEADER;
	__u8 addr[16] __attribute__((aligned(8)));
	__u32 v6, proto, options;

	if (ip + BW_IPV4_HEADER > end)
		return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
	v6 = bw_be16(ip - 2) == BW_TYPE_IPV6;
	if (v6) {
		if (ip + BW_IPV6_HEADER > end)
			return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
		bw_copy_ipv6(addr, ip + 24);
		proto = ip[6];
		options = 0;
	} else {
		bw_map_ipv4(addr, ip + 16);
		proto = ip[9];
		options = (ip[0] & 0xf) > 5;
	}
	if (!balance_vip(addr, 0, 0))
		return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
	if (parsed == BW_PARSE_FRAGMENT)
		return BALANCE_VERDICT(BALANCE_OUT_FRAGMENT, XDP_DROP);
	if (parsed != BW_PARSE_OTHER)
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	if (options)
		return BALANCE_VERDICT(BALANCE_OUT_OPTIONS, XDP_DROP);
	if (!v6)
		return proto == BW_PROTO_ICMP ? balance_icmp_ipv4(ctx) :
						BALANCE_VERDICT(BALANCE_OUT_NO_SERVICE, XDP_DROP);
	if (proto == BW_PROTO_ICMPV6)
		return balance_icmp_ipv6(ctx);
	if (proto == BW_EXT_HOPS || proto == BW_EXT_ROUTING || proto == BW_EXT_FRAGMENT ||
	    proto == BW_EXT_AUTH || proto == BW_EXT_DEST)
		return BALANCE_VERDICT(BALANCE_OUT_EXTENSIONS, XDP_DROP);
	return BALANCE_VERDICT(BALANCE_OUT_NO_SERVICE, XDP_DROP);
}

BW_INLINE void balance_measure_for(struct bw_packet *pkt, __u32 index)
{
	struct flow_counters *c;
	int fate;

	pkt->tuple.backend = index;
	fate = flow_observe(pkt);
	c = flow_counters();
	if (c)
		flow_tally(c, fate);
}

/* A packet with ports. */
BW_INLINE int balance_forward(struct xdp_md *ctx, struct bw_packet *pkt, int v6)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int service = balance_service_of(&pkt->tuple);
	struct balance_backend_tally *t;
	const struct balance_backend *b;
	__u32 index;

	if (service < 0) {
		if (!balance_vip(pkt->tuple.dst, 0, 0))
			return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
		return BALANCE_VERDICT(BALANCE_OUT_NO_SERVICE, XDP_DROP);
	}
	if (data + BW_ETH_HEADER + pkt->length > end &&
	    BW_ETH_HEADER + pkt->length > bw_frame_length(ctx))
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	if (data + BW_ETH_HEADER + BW_IPV4_HEADER > end)
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	if (v6 ? data[BW_ETH_HEADER + 6] != pkt->tuple.proto : data[BW_ETH_HEADER] != 0x45)
		return BALANCE_VERDICT(v6 ? BALANCE_OUT_EXTENSIONS : BALANCE_OUT_OPTIONS, XDP_DROP);
	index = balance_route(pkt, service);
	b = balance_backend(index);
	if (!index || !b)
		return BALANCE_VERDICT(BALANCE_OUT_NO_BACKEND, XDP_DROP);
	if (pkt->length + balance_overhead(b) > b->mtu)
		return balance_too_big(ctx, b->mtu - balance_overhead(b), v6);
	if (balance_expires(b, data + BW_ETH_HEADER, v6))
		return BALANCE_VERDICT(BALANCE_OUT_EXPIRED, XDP_DROP);
	t = balance_backend_tally(index);
	if (!t)
		return BALANCE_VERDICT(BALANCE_OUT_NO_BACKEND, XDP_DROP);
	t->packets++;
	t->bytes += pkt->length;
	if (measuring)
		balance_measure_for(pkt, index);
	return balance_send(ctx, b, &pkt->tuple, v6, pkt->length, BALANCE_OUT_FORWARDED);
}

BW_INLINE int balance_decide(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *ip = data + BW_ETH_HEADER;
	struct bw_packet pkt;
	int parsed;

	if (ip > end || !balance_is_ours(data))
		return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
	pkt.link = BW_ETH_HEADER;
	switch (bw_be16(ip - 2)) {
	case BW_TYPE_IPV4:
		parsed = bw_parse_ipv4(ip, end, &pkt);
		if (parsed == BW_PARSED)
			return balance_forward(ctx, &pkt, 0);
		break;
	case BW_TYPE_IPV6:
		parsed = bw_parse_ipv6(ip, end, &pkt);
		if (parsed == BW_PARSED)
			return balance_forward(ctx, &pkt, 1);
		break;
	default:
		return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
	}
	return balance_exception(ctx, parsed);
}

SEC("xdp")
int balance_xdp(struct xdp_md *ctx)
{
	__u64 done = balance_decide(ctx);
	struct balance_tallies *all = balance_tallies();
	__u64 outcome = done >> 8;

	barrier_var(outcome); /* one register for the test and the index */
	if (all && outcome < BALANCE_OUTS)
		all->outcome[outcome]++;
	return done & 0xff;
}

/* No struct has these: they tell the loader's generator of them. */
enum balance_bound *of_bound;
enum balance_vip_flag *of_vip_flag;
enum balance_backend_flag *of_backend_flag;
enum balance_seen_unit *of_seen_unit;
enum balance_outcome *of_outcome;
