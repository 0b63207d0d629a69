// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Health checks of the balancer's backends: packets of the host's own sockets that are marked for a
 * backend leave as the service's packets to it do, with its MAC address or through its tunnel.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "balance_intf.h"
#include "lib/packet.h"

#define BW_PROBE_MARK 0x62770000 /* as in probe.rs; the backend's index is in the low half */
#define BW_PROTO_IPIP 4
#define BW_PROTO_IPV6 41
#define BW_TTL 64
#define TCX_NEXT -1
#define TCX_DROP 2

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The balancer's, in place of which the loader puts it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BW_BACKENDS);
	__type(key, __u32);
	__type(value, struct bw_backend);
} backends SEC(".maps");

BW_INLINE int bw_is_ipv4(const __u8 *addr)
{
	return !*(const bw_word64 *)addr && *(const bw_word32 *)(addr + 8) == 0xffff0000;
}

/* `length`: bytes of the packet inside. */
BW_INLINE void bw_outer4(__u8 *h, const struct bw_backend *b, __u32 length, __u8 proto)
{
	__u32 sum = 0;
	int i;

	h[0] = 0x45;
	*(bw_wire16 *)(h + 2) = __builtin_bswap16(length + 20);
	h[6] = 0x40; /* may not be divided */
	h[8] = BW_TTL;
	h[9] = proto;
	*(bw_word32 *)(h + 12) = *(const bw_word32 *)(b->source + 12);
	*(bw_word32 *)(h + 16) = *(const bw_word32 *)(b->addr + 12);
	for (i = 0; i < 20; i += 2)
		sum += *(const bw_wire16 *)(h + i);
	sum = (sum & 0xffff) + (sum >> 16);
	*(bw_wire16 *)(h + 10) = ~(sum + (sum >> 16));
}

BW_INLINE void bw_outer6(__u8 *h, const struct bw_backend *b, __u32 length, __u8 proto)
{
	h[0] = 0x60;
	*(bw_wire16 *)(h + 4) = __builtin_bswap16(length);
	h[6] = proto;
	h[7] = BW_TTL;
	__builtin_memcpy(h + 8, b->source, 16);
	__builtin_memcpy(h + 24, b->addr, 16);
}

/* Puts an outer header between link and packet: 0, or the packet cannot be sent. */
BW_INLINE int bw_wrap(struct __sk_buff *skb, const struct bw_backend *b, __u32 type)
{
	__u8 proto = type == BW_TYPE_IPV4 ? BW_PROTO_IPIP : BW_PROTO_IPV6;
	__u32 length = skb->len - BW_ETH_HEADER;
	__u8 head[40] __attribute__((aligned(8))) = {};
	__u16 outer;

	/* the flags tell the stack where the inner headers are, whose checksum may be still to do */
	if (bw_is_ipv4(b->addr)) {
		if (bpf_skb_adjust_room(skb, 20, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV4))
			return -1;
		bw_outer4(head, b, length, proto);
		outer = __builtin_bswap16(BW_TYPE_IPV4);
		if (bpf_skb_store_bytes(skb, BW_ETH_HEADER, head, 20, 0))
			return -1;
	} else {
		if (bpf_skb_adjust_room(skb, 40, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
			return -1;
		bw_outer6(head, b, length, proto);
		outer = __builtin_bswap16(BW_TYPE_IPV6);
		if (bpf_skb_store_bytes(skb, BW_ETH_HEADER, head, 40, 0))
			return -1;
	}
	return bpf_skb_store_bytes(skb, BW_ETH_HEADER - 2, &outer, 2, 0);
}

SEC("tcx/egress")
int bw_probe(struct __sk_buff *skb)
{
	__u32 index = skb->mark & 0xffff, type;
	struct bw_backend *b;

	if ((skb->mark & 0xffff0000) != BW_PROBE_MARK)
		return TCX_NEXT;
	type = __builtin_bswap16(skb->protocol);
	if (type != BW_TYPE_IPV4 && type != BW_TYPE_IPV6)
		return TCX_NEXT; /* ARP for a probe */
	b = bpf_map_lookup_elem(&backends, &index);
	if (!b || b->state == BW_BACKEND_VACANT)
		return TCX_DROP; /* by another way it would say nothing of the backend */
	if (b->method == BW_METHOD_IPIP) {
		if (bw_wrap(skb, b, type))
			return TCX_DROP;
	} else if (b->method != BW_METHOD_L2) {
		return TCX_DROP;
	}
	if (bpf_skb_store_bytes(skb, 0, b->mac, 6, 0) || bpf_skb_store_bytes(skb, 6, b->own_mac, 6, 0))
		return TCX_DROP;
	skb->mark = 0; /* the way out may run this program, too */
	if (b->ifindex == skb->ifindex)
		return TCX_NEXT;
	return bpf_redirect(b->ifindex, 0);
}
