// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Hands every frame that arrives at one of the forwarder's two interfaces to the process that forwards.
 * Nothing goes up this host's stack.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "forward_intf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum bw_forward_port *of_port; /* for the loader's types */

const volatile __u32 to_ifindex; /* set by the loader */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, BW_FORWARD_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Frames that were dropped: not in the queue that the process hears. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} other_queue SEC(".maps");

SEC("xdp")
int bw_forward(struct xdp_md *ctx)
{
	__u32 port = ctx->ingress_ifindex == to_ifindex ? BW_FORWARD_TO : BW_FORWARD_FROM, zero = 0;
	__u64 *count;

	/* the loader saw to it that there is no other, but that may change */
	if (ctx->rx_queue_index) {
		count = bpf_map_lookup_elem(&other_queue, &zero);
		if (count)
			++*count;
		return XDP_DROP;
	}
	return bpf_redirect_map(&sockets, port, XDP_DROP);
}
