/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ICMP to a service's address: errors go to the backend of the connection that they are about, echo
 * requests are answered here.
 */
#ifndef BALANCE_ICMP_H
#define BALANCE_ICMP_H

#include "affinity.h"
#include "egress.h"

BW_INLINE int balance_same_addr(const __u8 *a, const __u8 *b)
{
	return *(const bw_word64 *)a == *(const bw_word64 *)b &&
	       *(const bw_word64 *)(a + 8) == *(const bw_word64 *)(b + 8);
}

/*
 * `t`: whose connection an error is about that came to `addr`; its IP header is at `ip`, and says that
 * it has `length` bytes.
 */
BW_INLINE int balance_send_error(struct xdp_md *ctx, const struct bw_tuple *t, const __u8 *addr,
				 const __u8 *ip, int v6, __u32 length)
{
	const struct balance_backend *b;
	int service;
	__u32 index;

	if (!balance_same_addr(t->dst, addr))
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_UNKNOWN, XDP_DROP);
	service = balance_service_of(t);
	if (service < 0)
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_UNKNOWN, XDP_DROP);
	index = balance_route_of(t, service);
	b = balance_backend(index);
	if (!index || !b || b->state == BALANCE_BACKEND_VACANT)
		return BALANCE_VERDICT(BALANCE_OUT_NO_BACKEND, XDP_DROP);
	if (length + balance_overhead(b) > b->mtu)
		/* errors get no errors (RFC 1122 3.2.2) */
		return BALANCE_VERDICT(BALANCE_OUT_TOO_BIG, XDP_DROP);
	if (balance_expires(b, ip, v6))
		return BALANCE_VERDICT(BALANCE_OUT_EXPIRED, XDP_DROP);
	return balance_send(ctx, b, t, v6, length, BALANCE_OUT_ICMP_FORWARDED);
}

/* ICMP over IPv4 without options, to a service's address. */
BW_NOINLINE int balance_icmp_ipv4(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *ip = data + BW_ETH_HEADER, *icmp = ip + BW_IPV4_HEADER;
	__u8 addr[16] __attribute__((aligned(8)));
	struct bw_tuple t;
	__u32 length;

	if (icmp + BW_ICMP_HEADER > end)
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	length = bw_be16(ip + 2);
	if (length < BW_IPV4_HEADER + BW_ICMP_HEADER ||
	    BW_ETH_HEADER + length > bw_frame_length(ctx))
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	if (icmp[0] == BW_ICMP_ECHO && !icmp[1]) {
		bw_echo_ipv4(data);
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_ANSWERED, XDP_TX);
	}
	if (!bw_icmp_is_error(icmp[0]) || bw_quoted_ipv4(icmp, end, &t))
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_UNKNOWN, XDP_DROP);
	bw_map_ipv4(addr, ip + 16);
	return balance_send_error(ctx, &t, addr, ip, 0, length);
}

/* ICMPv6 without extension headers, to a service's address. */
BW_NOINLINE int balance_icmp_ipv6(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *ip = data + BW_ETH_HEADER, *icmp = ip + BW_IPV6_HEADER;
	__u8 addr[16] __attribute__((aligned(8)));
	struct bw_tuple t;
	__u32 length;

	if (icmp + BW_ICMP_HEADER > end)
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	length = BW_IPV6_HEADER + bw_be16(ip + 4);
	if (length < BW_IPV6_HEADER + BW_ICMP_HEADER ||
	    BW_ETH_HEADER + length > bw_frame_length(ctx))
		return BALANCE_VERDICT(BALANCE_OUT_MALFORMED, XDP_DROP);
	if (icmp[0] == BW_ICMPV6_ECHO && !icmp[1]) {
		bw_echo_ipv6(data);
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_ANSWERED, XDP_TX);
	}
	if (icmp[0] >= BW_ICMPV6_ROUTER_SOLICITATION && icmp[0] <= BW_ICMPV6_REDIRECT)
		return BALANCE_VERDICT(BALANCE_OUT_PASSED, XDP_PASS);
	if (!bw_icmpv6_is_error(icmp[0]) || bw_quoted_ipv6(icmp, end, &t))
		return BALANCE_VERDICT(BALANCE_OUT_ICMP_UNKNOWN, XDP_DROP);
	bw_copy_ipv6(addr, ip + 24);
	return balance_send_error(ctx, &t, addr, ip, 1, length);
}

#endif
