/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counting the flows of each backend, and taking out those that are over.
 */
#ifndef BW_CENSUS_H
#define BW_CENSUS_H

#include "affinity.h"

#define BW_ACTIVE_IDLE (60 * BW_SEEN_SECOND) /* a flow that is idle for longer is not active */
#define BW_YOUNG_IDLE (3 * BW_SEEN_SECOND) /* a SYN that nothing follows for longer opens nothing */
/*
 * What the client still acknowledges, is not over. What has been silent since its FIN may be: or it
 * waits, half-closed, for an answer that takes its time. While there is room, it has it.
 */
#define BW_CLOSING_IDLE (60 * BW_SEEN_SECOND)
#define BW_HALF_CLOSED_IDLE (900 * BW_SEEN_SECOND)

/* By index; the loader sets them to 0 before each census. */
__u64 active[BW_BACKENDS]; /* flows that had a packet of late and are not closing */
__u64 kept[BW_BACKENDS];   /* all flows that would still be sent there and do not look over */
__s64 busy[BW_BACKENDS];   /* what busy_flows is to be */

struct bw_counting {
	__u32 now;
	__u32 left;
	__u32 removed;
	__u32 settled; /* the table that is looked at */
	__u32 closing_idle; /* how long closing flows stay */
};

BW_INLINE int bw_is_over(const struct bw_affinity *a, const struct bw_tuple *t, __u32 idle,
			 const struct bw_counting *c)
{
	if (!bw_kept(a))
		return 1;
	if (a->flags & BW_FLOW_CLOSING)
		return idle > c->closing_idle;
	if (t->proto != BW_PROTO_TCP)
		return idle > BW_UDP_IDLE;
	return idle > (c->settled ? BW_TCP_IDLE : BW_SYN_IDLE);
}

static long bw_count_flow(void *map, const struct bw_tuple *t, struct bw_affinity *a,
			  struct bw_counting *c)
{
	struct bw_affinity flow = bw_read(a);
	__u32 idle = bw_idle(&flow, c->now), index = flow.backend & (BW_BACKENDS - 1);

	if (bw_is_over(&flow, t, idle, c)) {
		if (!bpf_map_delete_elem(map, t))
			c->removed++;
		return 0;
	}
	c->left++;
	if (flow.flags & BW_FLOW_CLOSING) {
		kept[index] += idle <= BW_CLOSING_IDLE;
		return 0;
	}
	kept[index]++;
	if (c->settled && !(flow.flags & ~BW_FLOW_ASKS) && idle <= BW_ACTIVE_IDLE)
		active[index]++;
	if (c->settled ? flow.flags & BW_FLOW_ASKS && idle <= BW_ACTIVE_IDLE : idle <= BW_YOUNG_IDLE)
		busy[index]++;
	return 0;
}

/* Run by the loader. */
SEC("syscall")
int bw_census(struct bw_census *ctx)
{
	/* programs of this kind cannot read the coarse clock, which is at most a tick behind */
	struct bw_counting c = {
		.now = bpf_ktime_get_ns() >> BW_SEEN_SHIFT,
		.settled = 1,
		.closing_idle = ctx->crowded ? BW_CLOSING_IDLE : BW_HALF_CLOSED_IDLE,
	};

	bpf_for_each_map_elem(&flows_settled, bw_count_flow, &c, 0);
	ctx->settled = c.left;
	c.left = 0;
	c.settled = 0;
	c.closing_idle = BW_CLOSING_IDLE;
	bpf_for_each_map_elem(&flows_young, bw_count_flow, &c, 0);
	ctx->young = c.left;
	ctx->removed = c.removed;
	return 0;
}

#endif
