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
__u64 own_macs[BW_INTERFACES];

/*
 * Whether a frame is for one of our interfaces. Others come where a switch floods or an interface is
 * promiscuous: two load balancers on one segment would hand them to each other for ever.
 */
BW_INLINE int bw_is_ours(const __u8 *eth)
{
	__u64 to = *(const bw_wire32 *)eth | (__u64)*(const bw_wire16 *)(eth + 4) << 32;
	__u32 n = n_own_macs, i;

	for (i = 0; i < n && i < BW_INTERFACES; i++) {
		if (own_macs[i] == to)
			return 1;
	}
	return !n;
}

/* What is no TCP or UDP packet with ports, as `parsed` says. */
BW_APART int bw_exception(struct xdp_md *ctx, int parsed)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *ip = data + BW_ETH_HEADER;
	__u8 addr[16] __attribute__((aligned(8)));
	__u32 v6, proto, options;

	if (ip + BW_IPV4_HEADER > end)
		return BW_DO(BW_OUT_PASSED, XDP_PASS);
	v6 = bw_be16(ip - 2) == BW_TYPE_IPV6;
	if (v6) {
		if (ip + BW_IPV6_HEADER > end)
			return BW_DO(BW_OUT_PASSED, XDP_PASS);
		bw_copy_ipv6(addr, ip + 24);
		proto = ip[6];
		options = 0;
	} else {
		bw_map_ipv4(addr, ip + 16);
		proto = ip[9];
		options = (ip[0] & 0xf) > 5;
	}
	if (!bw_vip(addr, 0, 0))
		return BW_DO(BW_OUT_PASSED, XDP_PASS);
	if (parsed == BW_PARSE_FRAGMENT)
		return BW_DO(BW_OUT_FRAGMENT, XDP_DROP);
	if (parsed != BW_PARSE_OTHER)
		return BW_DO(BW_OUT_MALFORMED, XDP_DROP);
	if (options)
		return BW_DO(BW_OUT_OPTIONS, XDP_DROP);
	if (!v6)
		return proto == BW_PROTO_ICMP ? bw_icmp_ipv4(ctx) :
						BW_DO(BW_OUT_NO_SERVICE, XDP_DROP);
	if (proto == BW_PROTO_ICMPV6)
		return bw_icmp_ipv6(ctx);
	if (proto == BW_EXT_HOPS || proto == BW_EXT_ROUTING || proto == BW_EXT_FRAGMENT ||
	    proto == BW_EXT_AUTH || proto == BW_EXT_DEST)
		return BW_DO(BW_OUT_EXTENSIONS, XDP_DROP);
	return BW_DO(BW_OUT_NO_SERVICE, XDP_DROP);
}

BW_INLINE void bw_measure_for(struct bw_packet *pkt, __u32 index)
{
	struct bw_counters *c;
	int fate;

	pkt->tuple.backend = index;
	fate = bw_see(pkt);
	c = bw_counters();
	if (c)
		bw_tally(c, fate);
}

/* A packet with ports. */
BW_INLINE int bw_forward(struct xdp_md *ctx, struct bw_packet *pkt, int v6)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int service = bw_service_of(&pkt->tuple);
	struct bw_backend_tally *t;
	const struct bw_backend *b;
	__u32 index;

	if (service < 0) {
		if (!bw_vip(pkt->tuple.dst, 0, 0))
			return BW_DO(BW_OUT_PASSED, XDP_PASS);
		return BW_DO(BW_OUT_NO_SERVICE, XDP_DROP);
	}
	if (data + BW_ETH_HEADER + pkt->length > end &&
	    BW_ETH_HEADER + pkt->length > bw_frame_length(ctx))
		return BW_DO(BW_OUT_MALFORMED, XDP_DROP);
	if (data + BW_ETH_HEADER + BW_IPV4_HEADER > end)
		return BW_DO(BW_OUT_MALFORMED, XDP_DROP);
	if (v6 ? data[BW_ETH_HEADER + 6] != pkt->tuple.proto : data[BW_ETH_HEADER] != 0x45)
		return BW_DO(v6 ? BW_OUT_EXTENSIONS : BW_OUT_OPTIONS, XDP_DROP);
	index = bw_route(pkt, service);
	b = bw_backend(index);
	if (!index || !b)
		return BW_DO(BW_OUT_NO_BACKEND, XDP_DROP);
	if (pkt->length + bw_overhead(b) > b->mtu)
		return bw_too_big(ctx, b->mtu - bw_overhead(b), v6);
	if (bw_expires(b, data + BW_ETH_HEADER, v6))
		return BW_DO(BW_OUT_EXPIRED, XDP_DROP);
	t = bw_backend_tally(index);
	if (!t)
		return BW_DO(BW_OUT_NO_BACKEND, XDP_DROP);
	t->packets++;
	t->bytes += pkt->length;
	if (measuring)
		bw_measure_for(pkt, index);
	return bw_send(ctx, b, &pkt->tuple, v6, pkt->length, BW_OUT_FORWARDED);
}

BW_INLINE int bw_decide(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *ip = data + BW_ETH_HEADER;
	struct bw_packet pkt;
	int parsed;

	if (ip > end || !bw_is_ours(data))
		return BW_DO(BW_OUT_PASSED, XDP_PASS);
	pkt.link = BW_ETH_HEADER;
	switch (bw_be16(ip - 2)) {
	case BW_TYPE_IPV4:
		parsed = bw_parse_ipv4(ip, end, &pkt);
		if (parsed == BW_PARSED)
			return bw_forward(ctx, &pkt, 0);
		break;
	case BW_TYPE_IPV6:
		parsed = bw_parse_ipv6(ip, end, &pkt);
		if (parsed == BW_PARSED)
			return bw_forward(ctx, &pkt, 1);
		break;
	default:
		return BW_DO(BW_OUT_PASSED, XDP_PASS);
	}
	return bw_exception(ctx, parsed);
}

SEC("xdp")
int bw_balance(struct xdp_md *ctx)
{
	__u64 done = bw_decide(ctx);
	struct bw_tallies *all = bw_tallies();
	__u64 outcome = done >> 8;

	barrier_var(outcome); /* one register for the test and the index */
	if (all && outcome < BW_OUTS)
		all->outcome[outcome]++;
	return done & 0xff;
}

/* No struct has these: they tell the loader's generator of them. */
enum bw_bound *of_bound;
enum bw_vip_flag *of_vip_flag;
enum bw_backend_flag *of_backend_flag;
enum bw_seen_unit *of_seen_unit;
enum bw_outcome *of_outcome;
