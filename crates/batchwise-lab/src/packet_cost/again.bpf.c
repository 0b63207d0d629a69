// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Makes of one frame that BPF_PROG_TEST_RUN repeats the packets of many flows, and hands each to the
 * program that is measured. What that program did to the frame is undone before the next run, in the
 * same way whatever it was: else a packet would be encapsulated again and again, or run out of hops.
 * With a program that does nothing in its place, the difference is the cost.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
#define IPV4 20
#define IPV6 40
#define TCP 20
#define HOPS 64

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u32 flows = 1; /* the packets of so many take turns */
__u32 number;
__u32 seq;
__u32 length; /* of the frame, bytes */
__u32 v6;
__u32 mac[3];
__u32 out; /* interface */

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} measured SEC(".maps");

SEC("xdp")
int again(struct xdp_md *ctx)
{
	int grown = (int)(ctx->data_end - ctx->data) - (int)length;
	__u8 *data, *end, *tcp;

	if (bpf_xdp_adjust_head(ctx, grown))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET + IPV4 + TCP > end)
		return XDP_ABORTED;
	*(__u32 *)data = mac[0];
	*(__u32 *)(data + 4) = mac[1];
	*(__u32 *)(data + 8) = mac[2];
	*(__u16 *)(data + 12) = v6 ? 0xdd86 : 0x0008;
	if (++number >= flows) {
		number = 0;
		seq += 100; /* the payload's length */
	}
	/* the last bytes of the source address, and its port */
	if (v6) {
		if (data + ETHERNET + IPV6 + TCP > end)
			return XDP_ABORTED;
		data[ETHERNET + 7] = HOPS;
		*(__u16 *)(data + ETHERNET + 22) = number >> 16;
		tcp = data + ETHERNET + IPV6;
	} else {
		data[ETHERNET + 8] = HOPS; /* nobody looks at the header's checksum */
		*(__u16 *)(data + ETHERNET + 14) = number >> 16;
		tcp = data + ETHERNET + IPV4;
	}
	*(__u16 *)tcp = number;
	*(__u32 *)(tcp + 4) = __builtin_bswap32(seq);
	*(__u32 *)(tcp + 8) = __builtin_bswap32(seq);
	bpf_tail_call(ctx, &measured, 0);
	return XDP_ABORTED;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} measured_at_tc SEC(".maps");

/* The same for programs of tc, which change nothing: of IPv4, each flow with its own source. */
SEC("tc")
int again_at_tc(struct __sk_buff *skb)
{
	__u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + ETHERNET + IPV4 + TCP > end)
		return -1;
	if (++number >= flows)
		number = 0;
	*(__u16 *)(data + ETHERNET + 14) = number;
	*(__u16 *)(data + ETHERNET + IPV4) = number;
	bpf_tail_call(skb, &measured_at_tc, 0);
	return -1;
}

SEC("tc")
int nothing_at_tc(struct __sk_buff *skb)
{
	return -1; /* TCX_NEXT */
}

SEC("xdp")
int nothing(struct xdp_md *ctx)
{
	return XDP_TX;
}

/* A forwarder that looks at nothing. */
SEC("xdp")
int forward(struct xdp_md *ctx)
{
	return bpf_redirect(out, 0);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} onward SEC(".maps");

/* One more call on the way to the forwarder. */
SEC("xdp")
int relay(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &onward, 0);
	return XDP_ABORTED;
}

/* Where forwarded packets end. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	return XDP_DROP;
}
