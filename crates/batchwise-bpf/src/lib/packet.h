/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From a frame to whose packet it is and how much it carries. Reads only, and only below `end`.
 * Helper-free: compiled into the BPF programs and, for the tests, on the host.
 */
#ifndef BW_PACKET_H
#define BW_PACKET_H

#include "base.h"

#define BW_ETH_HEADER 14
#define BW_VLAN_TAG 4
#define BW_VLAN_TAGS 2
#define BW_EXT_HEADERS 6 /* IPv6 extension headers that are passed over */

#define BW_TYPE_IPV4 0x0800
#define BW_TYPE_IPV6 0x86dd
#define BW_TYPE_VLAN 0x8100
#define BW_TYPE_QINQ 0x88a8

#define BW_PROTO_TCP 6
#define BW_PROTO_UDP 17
#define BW_EXT_HOPS 0
#define BW_EXT_ROUTING 43
#define BW_EXT_FRAGMENT 44
#define BW_EXT_AUTH 51
#define BW_EXT_DEST 60

#define BW_TCP_FIN 0x01
#define BW_TCP_SYN 0x02
#define BW_TCP_RST 0x04
#define BW_TCP_ACK 0x10

enum bw_parse {
	BW_PARSED,
	BW_PARSE_OTHER,	    /* not TCP or UDP over IP, or too many tags or headers before it */
	BW_PARSE_MALFORMED, /* headers contradict themselves */
	BW_PARSE_FRAGMENT,  /* of more than one */
	BW_PARSE_SHORT,	    /* headers reach beyond `end` */
};

/* Whose packet it is, as the client sent it. */
struct bw_tuple {
	__u8 src[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u8 dst[16];
	__u16 sport; /* host order, as dport */
	__u16 dport;
	__u8 proto;
	__u8 reserved;
	__u16 backend; /* that a load balancer sends it to; 0: none */
} __attribute__((aligned(8)));

struct bw_packet {
	struct bw_tuple tuple;
	__u32 link;    /* bytes before the IP header */
	__u32 length;  /* bytes from there on, as the IP header says */
	__u32 payload; /* bytes, as the headers say */
	__u32 seq;     /* TCP, as the next two */
	__u32 ack;
	__u32 flags;
};

/* The kernel lets packets be read at any address; byte by byte would cost four times as much. */
#ifdef __bpf__
typedef __u16 __attribute__((may_alias)) bw_wire16;
typedef __u32 __attribute__((may_alias)) bw_wire32;
#else
typedef __u16 __attribute__((may_alias, aligned(1))) bw_wire16;
typedef __u32 __attribute__((may_alias, aligned(1))) bw_wire32;
#endif
typedef __u32 __attribute__((may_alias)) bw_word32;
typedef __u64 __attribute__((may_alias)) bw_word64;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines"
#endif

BW_INLINE __u32 bw_be16(const __u8 *p)
{
	return __builtin_bswap16(*(const bw_wire16 *)p);
}

BW_INLINE __u32 bw_be32(const __u8 *p)
{
	return __builtin_bswap32(*(const bw_wire32 *)p);
}

BW_INLINE void bw_map_ipv4(__u8 *to, const __u8 *from)
{
	*(bw_word64 *)to = 0;
	*(bw_word32 *)(to + 8) = 0xffff0000;
	*(bw_word32 *)(to + 12) = *(const bw_wire32 *)from;
}

BW_INLINE void bw_copy_ipv6(__u8 *to, const __u8 *from)
{
	*(bw_word32 *)to = *(const bw_wire32 *)from;
	*(bw_word32 *)(to + 4) = *(const bw_wire32 *)(from + 4);
	*(bw_word32 *)(to + 8) = *(const bw_wire32 *)(from + 8);
	*(bw_word32 *)(to + 12) = *(const bw_wire32 *)(from + 12);
}

/* What follows the IP header: `len` bytes at `p` by that header. */
BW_INLINE int bw_parse_transport(const __u8 *p, const __u8 *end, __u32 len, __u32 proto,
				 struct bw_packet *pkt)
{
	__u32 head;

	*(bw_word32 *)&pkt->tuple.proto = proto; /* and what is reserved */
	if (proto == BW_PROTO_TCP) {
		if (len < 20)
			return BW_PARSE_MALFORMED;
		if (p + 20 > end)
			return BW_PARSE_SHORT;
		head = (p[12] >> 4) * 4;
		if (head < 20 || head > len)
			return BW_PARSE_MALFORMED;
		pkt->payload = len - head;
		pkt->seq = bw_be32(p + 4);
		pkt->ack = bw_be32(p + 8);
		pkt->flags = p[13];
	} else {
		if (len < 8)
			return BW_PARSE_MALFORMED;
		if (p + 8 > end)
			return BW_PARSE_SHORT;
		head = bw_be16(p + 4);
		if (head < 8 || head > len)
			return BW_PARSE_MALFORMED;
		pkt->payload = head - 8;
		pkt->seq = 0;
		pkt->ack = 0;
		pkt->flags = 0;
	}
	pkt->tuple.sport = bw_be16(p);
	pkt->tuple.dport = bw_be16(p + 2);
	return BW_PARSED;
}

BW_INLINE int bw_parse_ipv4(const __u8 *p, const __u8 *end, struct bw_packet *pkt)
{
	__u32 head, total, proto;

	if (p + 20 > end)
		return BW_PARSE_SHORT;
	head = (p[0] & 0xf) * 4;
	total = bw_be16(p + 2);
	if (p[0] >> 4 != 4 || head < 20 || total < head)
		return BW_PARSE_MALFORMED;
	if (bw_be16(p + 6) & 0x3fff) /* more to come, or not the first */
		return BW_PARSE_FRAGMENT;
	proto = p[9];
	if (proto != BW_PROTO_TCP && proto != BW_PROTO_UDP)
		return BW_PARSE_OTHER;
	bw_map_ipv4(pkt->tuple.src, p + 12);
	bw_map_ipv4(pkt->tuple.dst, p + 16);
	pkt->length = total;
	return bw_parse_transport(p + head, end, total - head, proto, pkt);
}

BW_INLINE int bw_parse_ipv6(const __u8 *p, const __u8 *end, struct bw_packet *pkt)
{
	__u32 len, next, ext;
	int i;

	if (p + 40 > end)
		return BW_PARSE_SHORT;
	if (p[0] >> 4 != 6)
		return BW_PARSE_MALFORMED;
	len = bw_be16(p + 4);
	next = p[6];
	bw_copy_ipv6(pkt->tuple.src, p + 8);
	bw_copy_ipv6(pkt->tuple.dst, p + 24);
	pkt->length = 40 + len;
	p += 40;
	for (i = 0; i < BW_EXT_HEADERS; i++) {
		if (next == BW_PROTO_TCP || next == BW_PROTO_UDP)
			break;
		if (next != BW_EXT_ROUTING && next != BW_EXT_FRAGMENT && next != BW_EXT_AUTH &&
		    next != BW_EXT_DEST && (next != BW_EXT_HOPS || i))
			return BW_PARSE_OTHER;
		if (len < 8)
			return BW_PARSE_MALFORMED;
		if (p + 8 > end)
			return BW_PARSE_SHORT;
		ext = p[1] * 8 + 8;
		if (next == BW_EXT_AUTH) {
			if (!p[1])
				return BW_PARSE_MALFORMED;
			ext = p[1] * 4 + 8;
		}
		if (next == BW_EXT_FRAGMENT) {
			if (bw_be16(p + 2) & 0xfff9)
				return BW_PARSE_FRAGMENT;
			ext = 8;
		}
		if (ext > len)
			return BW_PARSE_MALFORMED;
		next = p[0];
		len -= ext;
		p += ext;
	}
	if (next != BW_PROTO_TCP && next != BW_PROTO_UDP)
		return BW_PARSE_OTHER;
	return bw_parse_transport(p, end, len, next, pkt);
}

/* enum bw_parse. That link + length is in the frame is for the caller to check, who knows where a
 * frame ends that has more than one part. */
BW_INLINE int bw_parse_packet(const __u8 *data, const __u8 *end, struct bw_packet *pkt)
{
	const __u8 *p = data + BW_ETH_HEADER;
	__u32 type;
	int i;

	if (p > end)
		return BW_PARSE_SHORT;
	type = bw_be16(p - 2);
	pkt->link = BW_ETH_HEADER;
	for (i = 0; i < BW_VLAN_TAGS; i++) {
		if (type != BW_TYPE_VLAN && type != BW_TYPE_QINQ)
			break;
		p += BW_VLAN_TAG;
		if (p > end)
			return BW_PARSE_SHORT;
		type = bw_be16(p - 2);
		pkt->link += BW_VLAN_TAG;
	}
	if (type == BW_TYPE_IPV4)
		return bw_parse_ipv4(p, end, pkt);
	if (type == BW_TYPE_IPV6)
		return bw_parse_ipv6(p, end, pkt);
	return BW_PARSE_OTHER;
}

#endif
