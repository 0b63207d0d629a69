// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Admits bursts to a router's queue whole, or not at all: before each packet enters the queue, in tc
 * egress. The queue is the kernel's, its length is read, and one CPU at a time decides.
 */
#include "../lib/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "admission.h"
#include "burst.h"

#define BURST_PULL 256 /* headers that a socket buffer may keep in another part */
#define TC_ACT_SHOT 2

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Linux 6.2 */
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;

/* Set before loading: marks are taken off behind the queue's door. */
const volatile bool border;

/* Bytes in the device's queue: it has one, and counts them in one place (the loader's to check). */
BW_INLINE __u32 burst_queued(struct __sk_buff *ctx)
{
	struct Qdisc *q;

	if (bpf_ksym_exists(bpf_cast_to_kern_ctx)) {
		struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

		q = skb->dev->_tx->qdisc;
		return packet_bytes ? q->q.qlen * packet_bytes : q->qstats.backlog;
	}
	q = BPF_CORE_READ((struct sk_buff *)ctx, dev, _tx, qdisc);
	if (packet_bytes)
		return BPF_CORE_READ(q, q.qlen) * packet_bytes;
	return BPF_CORE_READ(q, qstats.backlog);
}

/* The flow and the source of a marked packet, for which `segments` are left. 0, or -1: it cannot be read. */
BW_NOINLINE int burst_read_flow(struct __sk_buff *skb, struct burst_arrival *arrival, __u32 segments)
{
	__u32 linear = skb->data_end - skb->data, headers = skb->len;
	struct bw_packet pkt;

	if (headers > BURST_PULL)
		headers = BURST_PULL;
	if (linear < headers) /* else the driver left headers in the buffer's other parts */
		bpf_skb_pull_data(skb, headers);
	if (!arrival ||
	    bw_parse_packet((void *)(long)skb->data, (void *)(long)skb->data_end, &pkt) != BW_PARSED)
		return -1;
	arrival->tag = flow_tag(&pkt.tuple);
	__builtin_memcpy(arrival->source, pkt.tuple.src, sizeof(arrival->source));
	arrival->segments = segments;
	return 0;
}

/* Takes the mark off, of the header that is so many bytes behind the start. */
BW_INLINE void burst_clear(struct __sk_buff *skb, __u32 link, int v6, __u32 tos)
{
	const __u8 *ip = (void *)(long)skb->data + link, *end = (void *)(long)skb->data_end;

	if (ip + BURST_HEAD <= end && !burst_store_tos(skb, ip, link, v6, burst_clear_mark(tos, low)))
		__sync_fetch_and_add(&aside.cleared, 1);
}

SEC("tc")
int burst_admit(struct __sk_buff *skb)
{
	const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *ip;
	__u32 link = bw_link(data, end), tos = 0, buffered = skb->gso_segs, segments;
	struct burst_arrival arrival = { .bytes = skb->wire_len };
	int v6 = 0;

	ip = data + link;
	if (link && ip + BURST_HEAD <= end) {
		v6 = ip[0] >> 4 == 6;
		tos = bw_tos(ip, v6);
	}
	segments = burst_segments(tos, low);
	if (!skb->ingress_ifindex) {
		__sync_fetch_and_add(&aside.own, 1);
		goto pass;
	}
	if (!buffered)
		buffered = 1;
	if (packet_bytes)
		arrival.bytes = buffered * packet_bytes;
	arrival.segment = buffered > 1 ? arrival.bytes / buffered : arrival.bytes;
	if (segments && burst_read_flow(skb, &arrival, segments))
		__sync_fetch_and_add(&aside.unreadable, 1);
	arrival.queued = burst_queued(skb);
	burst_note_length(arrival.queued);
	if (burst_admit_packet(&arrival) > BURST_LAST)
		return TC_ACT_SHOT;
pass:
	if (border && segments)
		burst_clear(skb, link, v6, tos);
	return TCX_NEXT;
}
