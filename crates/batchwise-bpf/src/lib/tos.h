/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The byte of an IP header that has DSCP and ECN: IPv4's TOS, IPv6's traffic class (RFC 2474, RFC 3168);
 * and where that header is. Helper-free.
 */
#ifndef BW_TOS_H
#define BW_TOS_H

#include "packet.h"

/* Bytes before the IP header; 0: there is none. */
BW_INLINE __u32 bw_link(const __u8 *data, const __u8 *end)
{
	__u32 link = BW_ETH_HEADER, type, i;

#pragma unroll
	for (i = 0; i <= BW_VLAN_TAGS; i++) {
		if (data + link > end)
			return 0;
		type = bw_be16(data + link - 2);
		if (type == BW_TYPE_IPV4 || type == BW_TYPE_IPV6)
			return link;
		if (type != BW_TYPE_VLAN && type != BW_TYPE_QINQ)
			return 0;
		link += BW_VLAN_TAG;
	}
	return 0;
}

/* `ip`: at least 2 bytes. */
BW_INLINE __u32 bw_tos(const __u8 *ip, int v6)
{
	return v6 ? bw_be16(ip) >> 4 & 0xff : ip[1];
}

/* `ip`: at least 12 bytes; IPv4's sum follows (RFC 1624). */
BW_INLINE void bw_set_tos(__u8 *ip, int v6, __u32 tos)
{
	__u32 sum, before;

	if (v6) {
		ip[0] = (ip[0] & 0xf0) | tos >> 4;
		ip[1] = tos << 4 | (ip[1] & 0xf);
		return;
	}
	before = bw_be16(ip);
	ip[1] = tos;
	sum = (~bw_be16(ip + 10) & 0xffff) + (~before & 0xffff) + bw_be16(ip);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(bw_wire16 *)(ip + 10) = __builtin_bswap16(~sum);
}

#endif
