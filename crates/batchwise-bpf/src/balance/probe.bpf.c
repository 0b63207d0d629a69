// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Health checks of the balancer's backends: packets of the host's own sockets that are marked for a
 * backend leave as the service's packets to it do, with its MAC address or through its tunnel.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "balance_intf.h"
#include "../lib/encap.h"

#define PROBE_MARK 0x62770000 /* as in probe.rs; the backend's index is in the low half */
#define PROBE_TCP_FLAGS 13 /* their place in a TCP header */
#define TCX_NEXT -1
#define TCX_DROP 2

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The balancer's, in place of which the loader puts it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_BACKENDS);
	__type(key, __u32);
	__type(value, struct balance_backend);
} backends SEC(".maps");

/*
 * SYNs that left for each backend. A check whose SYN is not among them went another way, and what
 * came of it says nothing of the backend.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_BACKENDS);
	__type(key, __u32);
	__type(value, __u64);
} probed SEC(".maps");

/* Puts an outer header between link and packet: 0, or the packet cannot be sent. */
BW_INLINE int probe_wrap(struct __sk_buff *skb, const struct balance_backend *b, __u32 type)
{
	__u8 proto = type == BW_TYPE_IPV4 ? BW_PROTO_IPV4 : BW_PROTO_IPV6;
	__u32 length = skb->len - BW_ETH_HEADER;
	/* Ethernet's type and the outer header, which begins at a word */
	__u8 new[4 + BW_IPV6_HEADER] __attribute__((aligned(8))) = {};
	__u8 *head = new + 4;

	/* the flags tell the stack where the inner headers are, whose checksum may be still to do */
	if (bw_is_ipv4(b->addr)) {
		if (bpf_skb_adjust_room(skb, BW_IPV4_HEADER, BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_ENCAP_L3_IPV4))
			return -1;
		bw_put_ipv4(head, *(const bw_word32 *)(b->source + 12),
			    *(const bw_word32 *)(b->addr + 12), length, proto, 0);
		*(bw_wire16 *)(new + 2) = __builtin_bswap16(BW_TYPE_IPV4);
		return bpf_skb_store_bytes(skb, BW_ETH_HEADER - 2, new + 2, 2 + BW_IPV4_HEADER, 0);
	}
	if (bpf_skb_adjust_room(skb, BW_IPV6_HEADER, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return -1;
	bw_put_ipv6(head, b->source, b->addr, length, proto, 0, 0);
	*(bw_wire16 *)(new + 2) = __builtin_bswap16(BW_TYPE_IPV6);
	return bpf_skb_store_bytes(skb, BW_ETH_HEADER - 2, new + 2, 2 + BW_IPV6_HEADER, 0);
}

/* Of our own sockets, which set no IP options. */
BW_INLINE bool probe_is_syn(struct __sk_buff *skb, __u32 type)
{
	__u32 header = type == BW_TYPE_IPV4 ? BW_IPV4_HEADER : BW_IPV6_HEADER;
	__u8 flags;

	if (bpf_skb_load_bytes(skb, BW_ETH_HEADER + header + PROBE_TCP_FLAGS, &flags, sizeof(flags)))
		return false;
	return (flags & (BW_TCP_SYN | BW_TCP_ACK)) == BW_TCP_SYN;
}

SEC("tc")
int probe_tc(struct __sk_buff *skb)
{
	__u32 index = skb->mark & 0xffff, type;
	struct balance_backend *b;
	__u64 *count;
	bool syn;

	if ((skb->mark & 0xffff0000) != PROBE_MARK)
		return TCX_NEXT;
	type = __builtin_bswap16(skb->protocol);
	if (type != BW_TYPE_IPV4 && type != BW_TYPE_IPV6)
		return TCX_NEXT; /* ARP for a probe */
	b = bpf_map_lookup_elem(&backends, &index);
	if (!b || b->state == BALANCE_BACKEND_VACANT)
		return TCX_DROP; /* by another way it would say nothing of the backend */
	syn = probe_is_syn(skb, type);
	if (b->method == BALANCE_METHOD_IPIP) {
		if (probe_wrap(skb, b, type))
			return TCX_DROP;
	} else if (b->method != BALANCE_METHOD_L2) {
		return TCX_DROP;
	}
	if (bpf_skb_store_bytes(skb, 0, b->mac, sizeof(b->mac) + sizeof(b->own_mac), 0))
		return TCX_DROP;
	count = bpf_map_lookup_elem(&probed, &index);
	if (count && syn)
		__sync_fetch_and_add(count, 1);
	skb->mark = 0; /* the way out may run this program, too */
	if (b->ifindex == skb->ifindex)
		return TCX_NEXT;
	return bpf_redirect(b->ifindex, 0);
}
