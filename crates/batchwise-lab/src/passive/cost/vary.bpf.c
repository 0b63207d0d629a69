// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Makes of one packet that BPF_PROG_TEST_RUN repeats the packets of many flows, and hands each to
 * the program that is measured: with one that does nothing in its place, the difference is the cost.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TO_SOURCE (14 + 12)
#define TO_PORT (14 + 20)
#define TO_SEQ (14 + 20 + 4)
#define HEADERS (14 + 20 + 20)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u32 flows = 1; /* the packets of so many take turns */
__u32 number;
__u32 seq;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} measured SEC(".maps");

SEC("xdp")
int vary(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + HEADERS > end)
		return XDP_ABORTED;
	if (++number >= flows) {
		number = 0;
		seq += 100; /* the payload's length */
	}
	*(__u16 *)(data + TO_SOURCE + 2) = number >> 16;
	*(__u16 *)(data + TO_PORT) = number;
	*(__u32 *)(data + TO_SEQ) = __builtin_bswap32(seq);
	*(__u32 *)(data + TO_SEQ + 4) = __builtin_bswap32(seq);
	bpf_tail_call(ctx, &measured, 0);
	return XDP_ABORTED;
}

__u32 out; /* interface */

/* The paper's forwarder: to another interface. */
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

SEC("xdp")
int nothing(struct xdp_md *ctx)
{
	return XDP_PASS;
}
