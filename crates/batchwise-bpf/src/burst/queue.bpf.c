// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A router's queue of our own: first in, first out, as a queueing discipline (Linux 6.16 with
 * CONFIG_NET_SCH_BPF). The kernel calls it under the queue's lock, so it is exact on all CPUs.
 */
#include "../lib/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <linux/version.h>

#include "../lib/tos.h"
#include "admission.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define EBUSY 16
#define BURST_BEHIND 50000 /* ns: what a late timer may make up for */

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0) /* of the headers */
struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));
#endif

/* As the verifier knows them. */
#define burst_contains(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *list, struct bpf_list_node *node, void *meta,
				   __u64 offset) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *list) __ksym;
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *to) __ksym;
extern __u32 bpf_skb_get_hash(struct sk_buff *skb) __ksym;
extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 at, __u64 slack) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

/* Set before loading: packets leave at the rate of the rules, not as fast as the device takes them. */
const volatile bool paced;

struct burst_waiting {
	struct sk_buff __kptr *skb;
	struct bpf_list_node node;
};

struct burst_line {
	struct bpf_spin_lock lock;
	struct bpf_list_head packets burst_contains(burst_waiting, node);
};

/* A map: the kernel takes no lists in global variables that user space may map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst_line);
} line SEC(".maps");

/* Under the queue's lock. */
__u64 interface;	  /* the only queue there is: the address of its Qdisc */
__u64 free_at;		  /* when the next packet may leave, ns */
__u32 waiting;		  /* bytes, as the limit counts them */
__u8 headers[64] = { 0 }; /* of the packet that enters */

BW_INLINE struct burst_line *burst_line(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&line, &zero);
}

BW_INLINE __u32 burst_bytes(const struct sk_buff *skb)
{
	return ((const struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

BW_INLINE __u32 burst_buffered(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);
	__u32 segments = BPF_CORE_READ(shared, gso_segs);

	return segments ? segments : 1;
}

/* What the limit counts a packet as. */
BW_INLINE __u32 burst_size(const struct sk_buff *skb)
{
	return packet_bytes ? burst_buffered(skb) * packet_bytes : burst_bytes(skb);
}

/* The mark, the source and the flow, by the kernel's hash of it. */
BW_INLINE void burst_read_mark(struct sk_buff *skb, struct burst_arrival *arrival)
{
	__u32 len = skb->len, link, segments;
	const __u8 *ip, *end;
	struct bpf_dynptr all;
	int v6;

	if (len > sizeof(headers))
		len = sizeof(headers);
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &all) ||
	    bpf_dynptr_read(headers, len, &all, 0, 0))
		return;
	end = headers + len;
	link = bw_link(headers, end);
	ip = headers + link;
	if (!link || ip + 20 > end)
		return;
	v6 = ip[0] >> 4 == 6;
	segments = burst_segments(bw_tos(ip, v6), low);
	if (!segments || (v6 && ip + 40 > end))
		return;
	if (v6)
		bw_copy_ipv6(arrival->source, ip + 8);
	else
		bw_map_ipv4(arrival->source, ip + 12);
	arrival->tag = flow_finish(flow_mix(burst_source_hash(arrival), bpf_skb_get_hash(skb))) | 1;
	arrival->segments = segments;
}

SEC("struct_ops/burst_enqueue")
int BPF_PROG(burst_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct burst_arrival arrival = { .bytes = burst_size(skb), .queued = waiting };
	struct burst_line *l = burst_line();
	__u32 bytes = burst_bytes(skb);
	struct burst_waiting *place;

	burst_read_mark(skb, &arrival);
	arrival.segment = arrival.segments ? arrival.bytes / burst_buffered(skb) : arrival.bytes;
	burst_note_length(waiting);
	if (!l || burst_admit_packet(&arrival) > BURST_LAST)
		goto drop;
	place = bpf_obj_new_impl(bpf_core_type_id_local(struct burst_waiting), NULL);
	if (!place) {
		aside.starved++;
		goto drop;
	}
	skb = bpf_kptr_xchg(&place->skb, skb);
	if (skb) /* never: a new place is empty */
		bpf_qdisc_skb_drop(skb, to_free);
	bpf_spin_lock(&l->lock);
	bpf_list_push_back_impl(&l->packets, &place->node, NULL, 0);
	bpf_spin_unlock(&l->lock);
	waiting += arrival.bytes;
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	sch->qstats.drops++;
	return NET_XMIT_DROP;
}

/* The first packet, which is the caller's then. */
BW_INLINE struct sk_buff *burst_first(struct burst_line *l)
{
	struct burst_waiting *place;
	struct bpf_list_node *node;
	struct sk_buff *skb;

	bpf_spin_lock(&l->lock);
	node = bpf_list_pop_front(&l->packets);
	bpf_spin_unlock(&l->lock);
	if (!node)
		return NULL;
	place = container_of(node, struct burst_waiting, node);
	skb = bpf_kptr_xchg(&place->skb, NULL);
	bpf_obj_drop_impl(place, NULL);
	return skb;
}

SEC("struct_ops/burst_dequeue")
struct sk_buff *BPF_PROG(burst_dequeue, struct Qdisc *sch)
{
	__u64 now = bpf_ktime_get_ns();
	struct burst_line *l = burst_line();
	struct sk_buff *skb;

	if (!sch->q.qlen || !l)
		return NULL;
	if (paced && now < free_at) {
		bpf_qdisc_watchdog_schedule(sch, free_at, 0);
		return NULL;
	}
	skb = burst_first(l);
	if (!skb)
		return NULL;
	if (paced) {
		if (free_at + BURST_BEHIND < now)
			free_at = now;
		free_at += burst_time(rules.send_time, burst_bytes(skb));
	}
	waiting -= burst_size(skb);
	sch->q.qlen--;
	sch->qstats.backlog -= burst_bytes(skb);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/burst_init")
int BPF_PROG(burst_init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	if (interface)
		return -EBUSY;
	interface = (__u64)sch;
	return 0;
}

SEC("struct_ops/burst_reset")
void BPF_PROG(burst_reset, struct Qdisc *sch)
{
	struct burst_line *l = burst_line();
	struct sk_buff *skb;
	int i;

	if (!l || interface != (__u64)sch)
		return;
	bpf_for(i, 0, sch->q.qlen) {
		skb = burst_first(l);
		if (!skb)
			break;
		bpf_kfree_skb(skb);
	}
	waiting = 0;
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops/burst_destroy")
void BPF_PROG(burst_destroy, struct Qdisc *sch)
{
	if (interface == (__u64)sch)
		interface = 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops own_queue = {
	.enqueue = (void *)burst_enqueue,
	.dequeue = (void *)burst_dequeue,
	.init = (void *)burst_init,
	.reset = (void *)burst_reset,
	.destroy = (void *)burst_destroy,
	.id = "bwb", /* the loader's to write */
};
