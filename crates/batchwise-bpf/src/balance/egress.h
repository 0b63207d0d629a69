/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How a packet leaves: to a backend, rewritten or in an outer header, or back as ICMP.
 */
#ifndef BALANCE_EGRESS_H
#define BALANCE_EGRESS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "balance_intf.h"
#include "../lib/icmp.h"

/* What becomes of a packet: enum balance_outcome and the program's verdict. */
#define BALANCE_VERDICT(outcome, verdict) ((outcome) << 8 | (verdict))

/* Bytes of an outer header. */
BW_INLINE __u32 balance_overhead(const struct balance_backend *b)
{
	if (b->method != BALANCE_METHOD_IPIP)
		return 0;
	return bw_is_ipv4(b->addr) ? BW_IPV4_HEADER : BW_IPV6_HEADER;
}

BW_INLINE int balance_out(struct xdp_md *ctx, const struct balance_backend *b)
{
	return b->ifindex == ctx->ingress_ifindex ? XDP_TX : bpf_redirect(b->ifindex, 0);
}

/*
 * `length`: bytes of IP; `t`: the client's tuple. The IP header begins behind Ethernet's, and is in the
 * frame's first part.
 */
BW_INLINE int balance_encapsulate(struct xdp_md *ctx, const struct balance_backend *b,
				  const struct bw_tuple *t, int v6, __u32 length, __u32 tos, int outcome)
{
	__u32 proto = v6 ? BW_PROTO_IPV6 : BW_PROTO_IPV4, entropy = bw_entropy(t), source;
	int outer_v4 = bw_is_ipv4(b->addr);
	__u8 *data, *end;

	if (bpf_xdp_adjust_head(ctx, outer_v4 ? -BW_IPV4_HEADER : -BW_IPV6_HEADER))
		return BALANCE_VERDICT(BALANCE_OUT_UNSENT, XDP_DROP);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + BW_ETH_HEADER + BW_IPV6_HEADER > end) /* the shorter outer header has an inner */
		return BALANCE_VERDICT(BALANCE_OUT_UNSENT, XDP_DROP);
	bw_put_macs(data, b->mac); /* and .own_mac */
	if (outer_v4) {
		bw_put_type(data, BW_TYPE_IPV4);
		source = *(const bw_word32 *)(b->source + 12);
		source = (source & ~b->spread) | (entropy & b->spread);
		bw_put_ipv4(data + BW_ETH_HEADER, source, *(const bw_word32 *)(b->addr + 12),
			    length, proto, tos);
	} else {
		bw_put_type(data, BW_TYPE_IPV6);
		bw_put_ipv6(data + BW_ETH_HEADER, b->source, b->addr, length, proto, tos,
			    entropy);
	}
	return BALANCE_VERDICT(outcome, balance_out(ctx, b));
}

/*
 * Whether a packet has no hop left for the way to a backend on link: sending it there is routing, and
 * a packet that comes back again and again must end. A tunnel's end takes the hop itself.
 */
BW_INLINE int balance_expires(const struct balance_backend *b, const __u8 *ip, int v6)
{
	return b->method == BALANCE_METHOD_L2 && bw_hops(ip, v6) <= 1;
}

/* To a backend, for which it is not too big and has hops left; `t`: the client's tuple. */
BW_INLINE int balance_send(struct xdp_md *ctx, const struct balance_backend *b, const struct bw_tuple *t,
			   int v6, __u32 length, int outcome)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + BW_ETH_HEADER + BW_IPV4_HEADER > end)
		return BALANCE_VERDICT(BALANCE_OUT_UNSENT, XDP_DROP);
	if (b->method == BALANCE_METHOD_IPIP)
		return balance_encapsulate(ctx, b, t, v6, length, bw_tos(data + BW_ETH_HEADER, v6),
					   outcome);
	if (b->method != BALANCE_METHOD_L2)
		return BALANCE_VERDICT(BALANCE_OUT_NO_BACKEND, XDP_DROP);
	bw_take_hop(data + BW_ETH_HEADER, v6);
	bw_put_macs(data, b->mac); /* and .own_mac */
	return BALANCE_VERDICT(outcome, balance_out(ctx, b));
}

/*
 * Tells the client that packets may have `mtu` bytes (RFC 1191, RFC 4443 3.2). Its packet stays where
 * it is, and is cut behind what the answer repeats of it.
 */
BW_NOINLINE int balance_too_big(struct xdp_md *ctx, __u32 mtu, int v6)
{
	__u32 ip = v6 ? BW_IPV6_HEADER : BW_IPV4_HEADER;
	__u32 answer = BW_ETH_HEADER + ip + BW_ICMP_HEADER + BW_ICMP_QUOTE;
	int room = ip + BW_ICMP_HEADER, more;
	__u8 *data, *end;

	/* a backend that is not whole yet, or a way that is none */
	if ((int)mtu < (v6 ? BW_IPV6_LEAST_MTU - BW_IPV6_HEADER : BW_IPV4_LEAST_MTU))
		return BALANCE_VERDICT(BALANCE_OUT_NO_BACKEND, XDP_DROP);
	more = (int)bw_frame_length(ctx) + room - (int)answer;
	if (more < 0 || bpf_xdp_adjust_head(ctx, -room))
		return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_DROP);
	if (bpf_xdp_adjust_tail(ctx, -more))
		return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_DROP);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (v6) {
		if (data + BW_ETH_HEADER + BW_IPV6_HEADER + BW_ICMP_HEADER + BW_ICMP_QUOTE > end)
			return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_DROP);
		bw_too_big_ipv6(data, data + BW_IPV6_HEADER + BW_ICMP_HEADER, mtu);
	} else {
		if (data + BW_ETH_HEADER + BW_IPV4_HEADER + BW_ICMP_HEADER + BW_ICMP_QUOTE > end)
			return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_DROP);
		bw_too_big_ipv4(data, data + BW_IPV4_HEADER + BW_ICMP_HEADER, mtu);
	}
	return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_TX);
}

#endif
