// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The far end of the balancer's tunnels: takes the outer header off IP-in-IP packets (RFC 2003,
 * RFC 2473, protocols 4 and 41) and lets what was inside go on up the stack, as if it had arrived so.
 * Anything else goes its way unchanged, and is counted.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "decap_intf.h"
#include "tunnel.h"
#include "../lib/frame.h"

#define DECAP_ECN 0x3
#define DECAP_ECN_CE 0x3

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool any_source; /* else those in `from` */

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1); /* set by the loader */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct decap_prefix);
	__type(value, __u8);
} from SEC(".maps");

/* Addresses of this host. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u8[16]);
	__type(value, __u8);
} local SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct decap_fates);
} fates SEC(".maps");

/* Moves the Ethernet header over the outer one: 0, or the frame is as it was. */
BW_INLINE int decap_strip(struct xdp_md *ctx, const struct decap_outer *o)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *outer = data + BW_ETH_HEADER;
	int v6 = o->proto == BW_PROTO_IPV6;
	__u32 mac[3], congested, tos;
	__u8 *to;

	if (outer + 2 > end)
		return -1;
	congested = (bw_tos(outer, o->head != BW_IPV4_HEADER) & DECAP_ECN) == DECAP_ECN_CE;
	mac[0] = *(const bw_wire32 *)data;
	mac[1] = *(const bw_wire32 *)(data + 4);
	mac[2] = *(const bw_wire32 *)(data + 8);
	if (bpf_xdp_adjust_head(ctx, o->head == BW_IPV4_HEADER ? BW_IPV4_HEADER : BW_IPV6_HEADER))
		return -1;
	to = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (to + BW_ETH_HEADER + BW_IPV4_HEADER > end)
		return -1; /* cannot be: the packet inside was read */
	*(bw_wire32 *)to = mac[0];
	*(bw_wire32 *)(to + 4) = mac[1];
	*(bw_wire32 *)(to + 8) = mac[2];
	bw_put_type(to, v6 ? BW_TYPE_IPV6 : BW_TYPE_IPV4);
	to += BW_ETH_HEADER;
	tos = bw_tos(to, v6);
	if (congested && tos & DECAP_ECN) /* what was inside goes on with it (RFC 6040 4.2) */
		bw_set_tos(to, v6, tos | DECAP_ECN_CE);
	return 0;
}

SEC("xdp")
int decap_xdp(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *p = data + BW_ETH_HEADER;
	__u32 zero = 0, type;
	struct decap_fates *count = bpf_map_lookup_elem(&fates, &zero);
	struct decap_outer o = {};
	__u8 inner[16] __attribute__((aligned(8))) = {};
	int seen = DECAP_NO_TUNNEL;

	if (!count)
		return XDP_PASS;
	if (p <= end) {
		type = bw_be16(p - 2);
		if (type == BW_TYPE_IPV4)
			seen = decap_read_outer4(p, end, &o);
		else if (type == BW_TYPE_IPV6)
			seen = decap_read_outer6(p, end, &o);
	}
	o.src.bits = 32 + 128;
	if (seen == DECAP_NO_TUNNEL)
		count->no_tunnel++;
	else if (!bpf_map_lookup_elem(&local, o.dst))
		count->elsewhere++;
	else if (!any_source && !bpf_map_lookup_elem(&from, &o.src))
		count->foreign_source++;
	else if (seen == DECAP_FRAGMENT)
		count->fragment++;
	else if (seen == DECAP_OPTIONS)
		count->options++;
	else if (seen == DECAP_MALFORMED ||
		 BW_ETH_HEADER + o.head + o.rest > bw_frame_length(ctx) ||
		 !decap_read_inner(o.head == 20 ? p + 20 : p + 40, end, &o, inner))
		count->malformed++;
	else if (!bpf_map_lookup_elem(&local, inner))
		count->foreign_inner++;
	else if (decap_strip(ctx, &o))
		count->malformed++;
	else
		count->decapsulated++;
	return XDP_PASS;
}
