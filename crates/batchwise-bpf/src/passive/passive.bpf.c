// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The passive vantage: sees the packets that clients send as they pass, and keeps the gaps between
 * those of each flow. The packet is read, never written, and goes its way.
 */
#include "../flows/measure.h"
#include "../lib/frame.h"

#define TCX_NEXT -1
#define PASSIVE_PULL 256 /* headers that a socket buffer may keep in another part */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool some_ports; /* else all */
const volatile __u64 port_bits[65536 / 64];

/* The program that decides what becomes of a packet. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} then SEC(".maps");

BW_INLINE int passive_port_watched(__u32 port)
{
	__u32 word = port / 64;

	if (!some_ports)
		return 1;
	barrier_var(word); /* one register for the bound and the index */
	return word < 65536 / 64 && port_bits[word] >> (port % 64) & 1;
}

BW_INLINE int passive_observe_watched(const struct bw_packet *pkt)
{
	return passive_port_watched(pkt->tuple.dport) ? flow_observe(pkt) : FLOW_FATE_OTHER;
}

/* `frame`: bytes. */
BW_INLINE int passive_fate(int parsed, const struct bw_packet *pkt, __u64 frame)
{
	if (parsed == BW_PARSED)
		return pkt->link + pkt->length <= frame ? passive_observe_watched(pkt) : FLOW_FATE_MALFORMED;
	if (parsed == BW_PARSE_FRAGMENT)
		return FLOW_FATE_FRAGMENT;
	return parsed == BW_PARSE_OTHER ? FLOW_FATE_OTHER : FLOW_FATE_MALFORMED;
}

BW_INLINE void passive_observe_xdp(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct flow_counters *c = flow_counters();
	struct bw_packet pkt;
	__u64 frame = end - data;
	int parsed;

	if (!c)
		return;
	parsed = bw_parse_packet(data, end, &pkt);
	if (parsed == BW_PARSED && pkt.link + pkt.length > frame)
		frame = bw_frame_length(ctx); /* with the parts beyond the first */
	flow_tally(c, passive_fate(parsed, &pkt, frame));
}

/* Programs that call each other agree on `frags`. */
SEC("?xdp")
int passive_xdp(struct xdp_md *ctx)
{
	passive_observe_xdp(ctx);
	return XDP_PASS;
}

/* The same, and the verdict is another program's. */
SEC("?xdp")
int passive_xdp_then(struct xdp_md *ctx)
{
	passive_observe_xdp(ctx);
	bpf_tail_call(ctx, &then, 0);
	return XDP_PASS; /* it was taken out */
}

SEC("?tc")
int passive_tc(struct __sk_buff *skb)
{
	struct flow_counters *c = flow_counters();
	__u32 linear = skb->data_end - skb->data, headers = skb->len;
	struct bw_packet pkt;

	if (headers > PASSIVE_PULL)
		headers = PASSIVE_PULL;
	if (linear < headers) /* else the driver left headers in the buffer's other parts */
		bpf_skb_pull_data(skb, headers);
	if (c) {
		const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

		flow_tally(c, passive_fate(bw_parse_packet(data, end, &pkt), &pkt, skb->len));
	}
	return TCX_NEXT;
}
