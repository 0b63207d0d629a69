/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443) as a load balancer needs them: whose connection an
 * error is about, and the answers that it gives itself. Helper-free.
 */
#ifndef BW_ICMP_H
#define BW_ICMP_H

#include "encap.h"

#define BW_PROTO_ICMP 1
#define BW_PROTO_ICMPV6 58
#define BW_ICMP_HEADER 8
#define BW_ICMP_QUOTE 96 /* bytes of a packet that an answer repeats: all of its headers */

#define BW_ICMP_ECHO_REPLY 0
#define BW_ICMP_UNREACHABLE 3
#define BW_ICMP_ECHO 8
#define BW_ICMP_TIME_EXCEEDED 11
#define BW_ICMP_BAD_PARAMETER 12
#define BW_ICMP_FRAG_NEEDED 4 /* code of unreachable */

#define BW_ICMPV6_UNREACHABLE 1
#define BW_ICMPV6_TOO_BIG 2
#define BW_ICMPV6_BAD_PARAMETER 4
#define BW_ICMPV6_ECHO 128
#define BW_ICMPV6_ECHO_REPLY 129
#define BW_ICMPV6_ROUTER_SOLICITATION 133 /* neighbour discovery: to 137 */
#define BW_ICMPV6_REDIRECT 137

BW_INLINE int bw_icmp_is_error(__u32 type)
{
	return type == BW_ICMP_UNREACHABLE || type == BW_ICMP_TIME_EXCEEDED ||
	       type == BW_ICMP_BAD_PARAMETER;
}

BW_INLINE int bw_icmpv6_is_error(__u32 type)
{
	return type >= BW_ICMPV6_UNREACHABLE && type <= BW_ICMPV6_BAD_PARAMETER;
}

/* The ports behind a quoted header: the server sent it, so the client's tuple is the reverse. */
BW_INLINE int bw_quoted_ports(const __u8 *p, const __u8 *end, __u32 proto, struct bw_tuple *t)
{
	if (proto != BW_PROTO_TCP && proto != BW_PROTO_UDP)
		return -1;
	if (p + 8 > end)
		return -1;
	*(bw_word32 *)&t->proto = proto; /* and what is reserved */
	t->dport = bw_be16(p);
	t->sport = bw_be16(p + 2);
	return 0;
}

/*
 * The client's tuple of the connection that an error is about; `p` is where its ICMP header begins.
 * 0, or -1: none.
 */
BW_INLINE int bw_quoted_ipv4(const __u8 *p, const __u8 *end, struct bw_tuple *t)
{
	__u32 head;

	p += BW_ICMP_HEADER;
	if (p + BW_IPV4_HEADER > end || p[0] >> 4 != 4)
		return -1;
	head = (p[0] & 0xf) * 4;
	if (head < BW_IPV4_HEADER || bw_be16(p + 6) & 0x1fff) /* not the first fragment */
		return -1;
	bw_map_ipv4(t->dst, p + 12);
	bw_map_ipv4(t->src, p + 16);
	return bw_quoted_ports(p + head, end, p[9], t);
}

BW_INLINE int bw_quoted_ipv6(const __u8 *p, const __u8 *end, struct bw_tuple *t)
{
	p += BW_ICMP_HEADER;
	if (p + BW_IPV6_HEADER > end || p[0] >> 4 != 6)
		return -1;
	bw_copy_ipv6(t->dst, p + 8);
	bw_copy_ipv6(t->src, p + 24);
	return bw_quoted_ports(p + BW_IPV6_HEADER, end, p[6], t);
}

/* The checksum after a 16-bit word changed (RFC 1624), both as stored. */
BW_INLINE __u16 bw_adjust(__u16 checksum, __u16 before, __u16 after)
{
	return bw_checksum((__u64)(__u16)~checksum + (__u16)~before + after);
}

BW_INLINE void bw_swap32(__u8 *a, __u8 *b)
{
	__u32 keep = *(bw_wire32 *)a;

	*(bw_wire32 *)a = *(bw_wire32 *)b;
	*(bw_wire32 *)b = keep;
}

BW_INLINE void bw_swap_macs(__u8 *eth)
{
	__u16 keep = *(bw_wire16 *)(eth + 4);

	bw_swap32(eth, eth + 6);
	*(bw_wire16 *)(eth + 4) = *(bw_wire16 *)(eth + 10);
	*(bw_wire16 *)(eth + 10) = keep;
}

/* Makes of an echo request its answer. */
BW_INLINE void bw_echo_ipv4(__u8 *eth)
{
	__u8 *ip = eth + BW_ETH_HEADER, *icmp = ip + BW_IPV4_HEADER;
	__u16 hops = *(bw_wire16 *)(ip + 8);

	bw_swap_macs(eth);
	bw_swap32(ip + 12, ip + 16);
	ip[8] = BW_HOPS;
	*(bw_wire16 *)(ip + 10) =
		bw_adjust(*(bw_wire16 *)(ip + 10), hops, *(bw_wire16 *)(ip + 8));
	icmp[0] = BW_ICMP_ECHO_REPLY;
	*(bw_wire16 *)(icmp + 2) =
		bw_adjust(*(bw_wire16 *)(icmp + 2), BW_ICMP_ECHO, BW_ICMP_ECHO_REPLY);
}

BW_INLINE void bw_echo_ipv6(__u8 *eth)
{
	__u8 *ip = eth + BW_ETH_HEADER, *icmp = ip + BW_IPV6_HEADER;
	__u32 i;

	bw_swap_macs(eth);
#pragma unroll
	for (i = 8; i < 24; i += 4)
		bw_swap32(ip + i, ip + i + 16);
	ip[7] = BW_HOPS;
	icmp[0] = BW_ICMPV6_ECHO_REPLY;
	*(bw_wire16 *)(icmp + 2) =
		bw_adjust(*(bw_wire16 *)(icmp + 2), BW_ICMPV6_ECHO, BW_ICMPV6_ECHO_REPLY);
}

/*
 * A packet was too big: its answer, whose ICMP header is followed by BW_ICMP_QUOTE bytes of that
 * packet, and preceded by room for the headers that are written here, of which `eth` is the first.
 * `macs`: the packet's Ethernet header.
 */
BW_INLINE void bw_answer_head(__u8 *eth, const __u8 *macs, __u32 type)
{
	__u16 to = *(const bw_wire16 *)(macs + 10), from = *(const bw_wire16 *)(macs + 4);
	__u32 to_begin = *(const bw_wire32 *)(macs + 6), from_begin = *(const bw_wire32 *)macs;

	*(bw_wire32 *)eth = to_begin;
	*(bw_wire16 *)(eth + 4) = to;
	*(bw_wire32 *)(eth + 6) = from_begin;
	*(bw_wire16 *)(eth + 10) = from;
	bw_put_type(eth, type);
}

BW_INLINE void bw_too_big_ipv4(__u8 *eth, const __u8 *macs, __u32 mtu)
{
	__u8 *ip = eth + BW_ETH_HEADER, *icmp = ip + BW_IPV4_HEADER;
	const __u8 *quote = icmp + BW_ICMP_HEADER;
	__u32 first = BW_ICMP_UNREACHABLE | BW_ICMP_FRAG_NEEDED << 8;
	__u32 second = (__u32)__builtin_bswap16(mtu) << 16;
	__u64 sum = bw_sum(quote, BW_ICMP_QUOTE) + first + second;

	bw_answer_head(eth, macs, BW_TYPE_IPV4);
	bw_put_ipv4(ip, *(const bw_wire32 *)(quote + 16), *(const bw_wire32 *)(quote + 12),
		    BW_ICMP_HEADER + BW_ICMP_QUOTE, BW_PROTO_ICMP, 0);
	*(bw_wire32 *)icmp = first | (__u32)bw_checksum(sum) << 16;
	*(bw_wire32 *)(icmp + 4) = second;
}

BW_INLINE void bw_too_big_ipv6(__u8 *eth, const __u8 *macs, __u32 mtu)
{
	__u8 *ip = eth + BW_ETH_HEADER, *icmp = ip + BW_IPV6_HEADER;
	const __u8 *quote = icmp + BW_ICMP_HEADER;
	__u32 length = BW_ICMP_HEADER + BW_ICMP_QUOTE;
	__u32 first = BW_ICMPV6_TOO_BIG, second = __builtin_bswap32(mtu);
	__u64 sum = bw_sum(quote, BW_ICMP_QUOTE) + first + second;

	/* the pseudo-header: both addresses, length and protocol */
	sum += bw_sum(quote + 8, 32) + __builtin_bswap32(length) +
	       __builtin_bswap32(BW_PROTO_ICMPV6);
	bw_answer_head(eth, macs, BW_TYPE_IPV6);
	bw_put_ipv6(ip, quote + 24, quote + 8, length, BW_PROTO_ICMPV6, 0, 0);
	*(bw_wire32 *)icmp = first | (__u32)bw_checksum(sum) << 16;
	*(bw_wire32 *)(icmp + 4) = second;
}

#endif
