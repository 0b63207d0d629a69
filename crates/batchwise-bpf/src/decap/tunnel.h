/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the decapsulator reads: the outer header of IP in IP (RFC 2003, RFC 2473), and whose the packet
 * inside is. Helper-free.
 */
#ifndef DECAP_TUNNEL_H
#define DECAP_TUNNEL_H

#include "decap_intf.h"
#include "../lib/encap.h"

enum decap_outer_kind {
	DECAP_TUNNEL,
	DECAP_NO_TUNNEL,
	DECAP_FRAGMENT,
	DECAP_OPTIONS,
	DECAP_MALFORMED,
};

struct decap_outer {
	struct decap_prefix src;
	__u8 dst[16];
	__u32 head; /* bytes */
	__u32 rest; /* bytes after it, as it says */
	__u32 proto;
} __attribute__((aligned(8)));

BW_INLINE int decap_is_tunnel(__u32 proto)
{
	return proto == BW_PROTO_IPV4 || proto == BW_PROTO_IPV6;
}

BW_INLINE int decap_read_outer4(const __u8 *p, const __u8 *end, struct decap_outer *o)
{
	if (p + 20 > end || !decap_is_tunnel(p[9]))
		return DECAP_NO_TUNNEL;
	o->head = 20;
	o->rest = bw_be16(p + 2) - 20;
	o->proto = p[9];
	o->src.version = 4;
	bw_map_ipv4(o->src.addr, p + 12);
	bw_map_ipv4(o->dst, p + 16);
	if (p[0] >> 4 != 4 || (p[0] & 0xf) < 5 || bw_be16(p + 2) < 20)
		return DECAP_MALFORMED;
	if ((p[0] & 0xf) != 5)
		return DECAP_OPTIONS;
	if (bw_be16(p + 6) & 0x3fff) /* more to come, or not the first */
		return DECAP_FRAGMENT;
	/* what is inside would else be taken in with an address that was damaged on the way */
	return bw_checksum(bw_sum(p, BW_IPV4_HEADER)) ? DECAP_MALFORMED : DECAP_TUNNEL;
}

BW_INLINE int decap_read_outer6(const __u8 *p, const __u8 *end, struct decap_outer *o)
{
	__u32 next;
	int seen = DECAP_TUNNEL;

	if (p + 40 > end)
		return DECAP_NO_TUNNEL;
	next = p[6];
	/* one header between them is looked behind: Linux's own tunnels put a limit of nesting there */
	if (next == BW_EXT_DEST || next == BW_EXT_FRAGMENT) {
		if (p + 48 > end)
			return DECAP_NO_TUNNEL;
		seen = next == BW_EXT_DEST ? DECAP_OPTIONS : DECAP_FRAGMENT;
		next = p[40];
	}
	if (!decap_is_tunnel(next))
		return DECAP_NO_TUNNEL;
	o->head = 40;
	o->rest = bw_be16(p + 4);
	o->proto = next;
	o->src.version = 6;
	bw_copy_ipv6(o->src.addr, p + 8);
	bw_copy_ipv6(o->dst, p + 24);
	if (p[0] >> 4 != 6 || bw_is_ipv4(o->src.addr) || bw_is_ipv4(o->dst))
		return DECAP_MALFORMED; /* no packet may have them: they would be taken for IPv4's */
	return seen;
}

/* Whose the packet inside is; 0: it is none. */
BW_INLINE int decap_read_inner(const __u8 *q, const __u8 *end, const struct decap_outer *o, __u8 *dst)
{
	__u32 head;

	if (o->proto == BW_PROTO_IPV4) {
		if (q + 20 > end)
			return 0;
		head = (q[0] & 0xf) * 4;
		bw_map_ipv4(dst, q + 16);
		return q[0] >> 4 == 4 && head >= 20 && bw_be16(q + 2) >= head &&
		       bw_be16(q + 2) <= o->rest;
	}
	if (q + 40 > end)
		return 0;
	bw_copy_ipv6(dst, q + 24);
	return q[0] >> 4 == 6 && bw_be16(q + 4) + 40 <= o->rest && !bw_is_ipv4(dst);
}

#endif
