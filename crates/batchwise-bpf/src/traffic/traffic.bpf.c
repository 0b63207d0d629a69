// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Counts what the network stack does while these are attached: so that "why" stands beside "where".
 */
#include "../lib/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../lib/base.h"
#include "traffic_intf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_counts);
} traffic SEC(".maps");

BW_INLINE struct traffic_counts *traffic_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&traffic, &zero);
}

/* Packets on the wire that a buffer is made of, or is made into. */
BW_INLINE __u32 traffic_packets(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);
	__u16 segments = BPF_CORE_READ(shared, gso_segs);

	return segments ? segments : 1;
}

BW_INLINE __u32 traffic_size(__u32 bytes)
{
	__u32 size = bytes / TRAFFIC_SIZE;

	/* the verifier is to see that it is `size` which is compared */
	asm volatile("" : "+r"(size));
	return size < TRAFFIC_SIZES ? size : TRAFFIC_SIZES - 1;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(traffic_received, struct sk_buff *skb)
{
	struct traffic_counts *t = traffic_here();

	if (!t)
		return 0;
	t->received++;
	t->received_bytes += skb->len;
	t->received_packets += traffic_packets(skb);
	t->received_sizes[traffic_size(skb->len)]++;
	return 0;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(traffic_queued, struct sk_buff *skb)
{
	struct traffic_counts *t = traffic_here();

	if (!t)
		return 0;
	t->queued++;
	t->queued_bytes += skb->len;
	t->queued_packets += traffic_packets(skb);
	t->queued_sizes[traffic_size(skb->len)]++;
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int traffic_retransmitted(void *ctx)
{
	struct traffic_counts *t = traffic_here();

	if (t)
		t->retransmissions++;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int traffic_woken(void *ctx)
{
	struct traffic_counts *t = traffic_here();

	if (t)
		t->wakeups++;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(traffic_sent, struct sock *sk, int bytes)
{
	struct traffic_counts *t = traffic_here();

	if (!t || bytes < 0)
		return 0;
	t->sends++;
	t->sent_bytes += bytes;
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(traffic_read, struct sock *sk, int bytes)
{
	struct traffic_counts *t = traffic_here();

	if (!t || bytes < 0)
		return 0;
	t->reads++;
	t->read_bytes += bytes;
	return 0;
}

/* No map has it by type: it tells the loader's generator of it. */
struct traffic_counts *of_traffic;
