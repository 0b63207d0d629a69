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
	__type(value, struct bw_traffic);
} traffic SEC(".maps");

BW_INLINE struct bw_traffic *bw_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&traffic, &zero);
}

/* Packets on the wire that a buffer is made of, or is made into. */
BW_INLINE __u32 bw_packets(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);
	__u16 segments = BPF_CORE_READ(shared, gso_segs);

	return segments ? segments : 1;
}

BW_INLINE __u32 bw_size(__u32 bytes)
{
	__u32 size = bytes / BW_TRAFFIC_SIZE;

	/* the verifier is to see that it is `size` which is compared */
	asm volatile("" : "+r"(size));
	return size < BW_TRAFFIC_SIZES ? size : BW_TRAFFIC_SIZES - 1;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(bw_received, struct sk_buff *skb)
{
	struct bw_traffic *t = bw_here();

	if (!t)
		return 0;
	t->received++;
	t->received_bytes += skb->len;
	t->received_packets += bw_packets(skb);
	t->received_sizes[bw_size(skb->len)]++;
	return 0;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(bw_queued, struct sk_buff *skb)
{
	struct bw_traffic *t = bw_here();

	if (!t)
		return 0;
	t->queued++;
	t->queued_bytes += skb->len;
	t->queued_packets += bw_packets(skb);
	t->queued_sizes[bw_size(skb->len)]++;
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int bw_retransmitted(void *ctx)
{
	struct bw_traffic *t = bw_here();

	if (t)
		t->retransmissions++;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int bw_woken(void *ctx)
{
	struct bw_traffic *t = bw_here();

	if (t)
		t->wakeups++;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(bw_sent, struct sock *sk, int bytes)
{
	struct bw_traffic *t = bw_here();

	if (!t || bytes < 0)
		return 0;
	t->sends++;
	t->sent_bytes += bytes;
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(bw_read, struct sock *sk, int bytes)
{
	struct bw_traffic *t = bw_here();

	if (!t || bytes < 0)
		return 0;
	t->reads++;
	t->read_bytes += bytes;
	return 0;
}

/* No map has it by type: it tells the loader's generator of it. */
struct bw_traffic *of_traffic;
