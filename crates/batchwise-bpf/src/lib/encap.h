/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Headers that a load balancer writes: Ethernet's addresses, and outer IPv4 and IPv6 headers
 * (RFC 2003, RFC 2473); and the hop that a router takes from a packet. Helper-free.
 */
#ifndef BW_ENCAP_H
#define BW_ENCAP_H

#include "packet.h"
#include "tos.h"

#define BW_IPV4_HEADER 20
#define BW_IPV6_HEADER 40
#define BW_PROTO_IPV4 4 /* in IP */
#define BW_PROTO_IPV6 41
#define BW_IPV4_LEAST_MTU 68 /* RFC 791, RFC 8200 */
#define BW_IPV6_LEAST_MTU 1280
#define BW_HOPS 64 /* TTL of packets that begin here */
#define BW_IPV4_DF 0x00400000 /* a header's second word */

BW_INLINE int bw_is_ipv4(const __u8 *addr)
{
	return !*(const bw_word64 *)addr && *(const bw_word32 *)(addr + 8) == 0xffff0000;
}

/* The sum of 16-bit words, not yet folded; `bytes`: a multiple of 4. */
BW_INLINE __u64 bw_sum(const __u8 *p, __u32 bytes)
{
	__u64 sum = 0;
	__u32 i;

#pragma unroll
	for (i = 0; i < bytes; i += 4)
		sum += *(const bw_wire32 *)(p + i);
	return sum;
}

/* The Internet checksum (RFC 1071), as it is stored. */
BW_INLINE __u16 bw_checksum(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return ~sum;
}

/* Both addresses, 12 bytes at a word, as a header has them. */
BW_INLINE void bw_put_macs(__u8 *eth, const __u8 *macs)
{
	*(bw_wire32 *)eth = *(const bw_word32 *)macs;
	*(bw_wire32 *)(eth + 4) = *(const bw_word32 *)(macs + 4);
	*(bw_wire32 *)(eth + 8) = *(const bw_word32 *)(macs + 8);
}

BW_INLINE void bw_put_type(__u8 *eth, __u32 type)
{
	*(bw_wire16 *)(eth + 12) = __builtin_bswap16(type);
}

/* An IPv4 header for `payload` bytes; addresses as in the packet. */
BW_INLINE void bw_put_ipv4(__u8 *p, __u32 src, __u32 dst, __u32 payload, __u32 proto, __u32 tos)
{
	bw_wire32 *w = (bw_wire32 *)p;
	__u32 first, third;

	first = 0x45 | (tos & 0xff) << 8 | __builtin_bswap32(BW_IPV4_HEADER + payload);
	third = BW_HOPS | proto << 8;
	w[0] = first;
	w[1] = BW_IPV4_DF;
	w[2] = third |
	       (__u32)bw_checksum((__u64)first + BW_IPV4_DF + third + src + dst) << 16;
	w[3] = src;
	w[4] = dst;
}

/* The same for IPv6; `label`: of the flow. */
BW_INLINE void bw_put_ipv6(__u8 *p, const __u8 *src, const __u8 *dst, __u32 payload, __u32 proto,
			   __u32 tos, __u32 label)
{
	bw_wire32 *w = (bw_wire32 *)p;

	w[0] = __builtin_bswap32(6U << 28 | (tos & 0xff) << 20 | (label & 0xfffff));
	w[1] = (__u32)__builtin_bswap16(payload) | proto << 16 | (__u32)BW_HOPS << 24;
	bw_copy_ipv6(p + 8, src);
	bw_copy_ipv6(p + 24, dst);
}

/*
 * Tells the flows to one backend apart, for those on the way who hash outer headers to share packets
 * out: paths (RFC 6438), and the backend's receive queues. `t`: the client's tuple.
 */
BW_INLINE __u32 bw_entropy(const struct bw_tuple *t)
{
	const bw_word64 *client = (const bw_word64 *)t->src;
	__u64 h = (client[0] ^ client[1]) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 32 ^ *(const bw_word32 *)&t->sport) * 0xbf58476d1ce4e5b9ULL;
	return h >> 32;
}

/* Hops that a packet may still take. */
BW_INLINE __u32 bw_hops(const __u8 *ip, int v6)
{
	return v6 ? ip[7] : ip[8];
}

/* Takes one (RFC 1812 5.3.1, RFC 8200 3), of which there are more; IPv4's sum follows (RFC 1624). */
BW_INLINE void bw_take_hop(__u8 *ip, int v6)
{
	__u32 sum;

	if (v6) {
		ip[7]--;
		return;
	}
	ip[8]--;
	sum = *(bw_wire16 *)(ip + 10) + 1;
	*(bw_wire16 *)(ip + 10) = sum + (sum >= 0xffff);
}

#endif
