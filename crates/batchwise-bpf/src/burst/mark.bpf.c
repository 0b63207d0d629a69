// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Marks bursts where they leave a sender, and takes marks off where the network that knows them ends.
 * Packets are seen in tc egress: as TCP hands them over, before a GSO buffer is cut. All segments of a
 * buffer bear its mark.
 */
#include "../lib/kernel.h"

#include <bpf/bpf_helpers.h>

#include "burst.h"
#include "burst_intf.h"

#define BURST_UNPACED 10 /* segments of a connection that are sent before its pacing: tcp_update_skb_after_send() */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 least;	/* segments of a burst */
const volatile __u8 low;	/* bits that the code points of marks share */
const volatile bool some_ports; /* else all */
const volatile __u64 port_bits[65536 / 64];

/* Until where a socket's burst reaches. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} bursts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst_mark_fates);
} fates SEC(".maps");

BW_INLINE struct burst_mark_fates *burst_fates(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&fates, &zero);
}

BW_INLINE int burst_has_port(__u32 port)
{
	__u32 word = port / 64;

	barrier_var(word); /* one register for the bound and the index */
	return word < 65536 / 64 && port_bits[word] >> (port % 64) & 1;
}

/*
 * Segments that are left of what TCP sends at once, this buffer's `own` included. TCP counts the buffer
 * as sent only when it is through here (tcp_event_new_data_sent()).
 */
BW_INLINE __u32 burst_left(const struct tcp_sock *tp, __u32 seq, __u32 own)
{
	const struct sock *sk = (const struct sock *)tp;
	__u32 flight = tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
	__s32 window = tp->snd_cwnd - flight, peer = tp->snd_una + tp->snd_wnd - tp->snd_nxt;
	__u32 mss = tp->mss_cache, bytes = tp->write_seq - tp->snd_nxt, left;

	if (seq != tp->snd_nxt) /* sent once more */
		return own;
	/* what a pacer spreads is no burst */
	if (sk->sk_pacing_status != SK_PACING_NONE && tp->data_segs_out > BURST_UNPACED)
		return own;
	if (window <= (__s32)own || peer <= 0)
		return own;
	if (bytes > peer)
		bytes = peer;
	left = (bytes + mss - 1) / mss;
	left = left < window ? left : window;
	return left < own ? own : left;
}

/*
 * The segments that the mark tells of; 0: there is no burst. The end of a burst is told of however short
 * it is: it is what a loss delays most.
 */
BW_INLINE __u32 burst_announced(struct tcp_sock *tp, __u32 seq, __u32 left, struct burst_mark_fates *count)
{
	int begins = left >= least;
	__u32 *end = bpf_sk_storage_get(&bursts, tp, &seq,
					begins ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	__u32 until = seq + left * tp->mss_cache;

	if (!end)
		return begins ? left : 0;
	if (bw_after(until, tp->write_seq)) /* its last segment is not full */
		until = tp->write_seq;
	if (bw_after(*end, seq)) {
		if (seq != tp->snd_nxt) /* sent once more: alone, or as long as it is */
			return begins ? left : 0;
		if (begins && bw_after(until, *end))
			*end = until;
		return left < 2 ? 2 : left;
	}
	*end = begins ? until : seq;
	count->bursts += begins;
	return begins ? left : 0;
}

SEC("?tc")
int burst_mark(struct __sk_buff *skb)
{
	const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end, *ip;
	struct burst_mark_fates *count = burst_fates();
	__u32 own = skb->gso_segs, left, tos, marked;
	struct bpf_sock *sk = skb->sk;
	struct bw_packet pkt;
	struct tcp_sock *tp;
	int v6;

	if (!count)
		return TCX_NEXT;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp) {
		count->no_socket++;
		return TCX_NEXT;
	}
	if (bw_parse_packet(data, end, &pkt) != BW_PARSED) {
		count->unreadable++;
		return TCX_NEXT;
	}
	if (some_ports && !burst_has_port(pkt.tuple.sport) && !burst_has_port(pkt.tuple.dport)) {
		count->other_port++;
		return TCX_NEXT;
	}
	if (!pkt.payload || pkt.flags & BW_TCP_SYN) {
		count->no_data++;
		return TCX_NEXT;
	}
	left = burst_left(tp, pkt.seq, own ? own : 1);
	left = burst_announced(tp, pkt.seq, left, count);
	if (!left) {
		count->too_short++;
		return TCX_NEXT;
	}
	ip = data + (pkt.link & 0xff);
	if (ip + BURST_HEAD > end) {
		count->unreadable++;
		return TCX_NEXT;
	}
	v6 = ip[0] >> 4 == 6;
	tos = bw_tos(ip, v6);
	marked = burst_set_mark(tos, left, low);
	if (burst_segments(tos, low))
		count->taken++;
	else if (marked == tos)
		count->dscp_used++;
	else if (burst_store_tos(skb, ip, pkt.link, v6, marked))
		count->unreadable++;
	else
		count->marked[marked >> 4 & 0xf]++;
	return TCX_NEXT;
}

/* The byte is looked at in every packet, whatever it carries. */
SEC("?tc")
int burst_border(struct __sk_buff *skb)
{
	const __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct burst_mark_fates *count = burst_fates();
	__u32 link, tos;
	const __u8 *ip;
	int v6;

	if (!count)
		return TCX_NEXT;
	link = bw_link(data, end);
	ip = data + link;
	if (!link || ip + BURST_HEAD > end)
		return TCX_NEXT;
	v6 = ip[0] >> 4 == 6;
	tos = bw_tos(ip, v6);
	if (!burst_segments(tos, low))
		return TCX_NEXT;
	if (burst_store_tos(skb, ip, link, v6, burst_clear_mark(tos, low)))
		count->unreadable++;
	else
		count->cleared++;
	return TCX_NEXT;
}
