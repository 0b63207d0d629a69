/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counting the flows of each backend, and taking out those that are over.
 */
#ifndef BALANCE_CENSUS_H
#define BALANCE_CENSUS_H

#include "affinity.h"

#define BALANCE_ACTIVE_IDLE (60 * BALANCE_SEEN_SECOND) /* a flow that is idle for longer is not active */
#define BALANCE_YOUNG_IDLE (3 * BALANCE_SEEN_SECOND) /* a SYN that nothing follows for longer opens nothing */
/*
 * What the client still acknowledges, is not over. What has been silent since its FIN may be: or it
 * waits, half-closed, for an answer that takes its time. While there is room, it has it.
 */
#define BALANCE_CLOSING_IDLE (60 * BALANCE_SEEN_SECOND)
#define BALANCE_HALF_CLOSED_IDLE (900 * BALANCE_SEEN_SECOND)

/* By index; the loader sets them to 0 before each census. */
__u64 active[BALANCE_BACKENDS]; /* flows that had a packet of late and are not closing */
__u64 kept[BALANCE_BACKENDS];   /* all flows that would still be sent there and do not look over */
__s64 busy[BALANCE_BACKENDS];   /* what busy_flows is to be */

struct balance_counting {
	__u32 now;
	__u32 left;
	__u32 removed;
	__u32 settled; /* the table that is looked at */
	__u32 closing_idle; /* how long closing flows stay */
};

BW_INLINE int balance_is_over(const struct balance_affinity *a, const struct bw_tuple *t, __u32 idle,
			      const struct balance_counting *c)
{
	if (!balance_kept(a))
		return 1;
	if (a->flags & BALANCE_FLOW_CLOSING)
		return idle > c->closing_idle;
	if (t->proto != BW_PROTO_TCP)
		return idle > BALANCE_UDP_IDLE;
	return idle > (c->settled ? BALANCE_TCP_IDLE : BALANCE_SYN_IDLE);
}

static long balance_count_flow(void *map, const struct bw_tuple *t, struct balance_affinity *a,
			       struct balance_counting *c)
{
	struct balance_affinity flow = balance_read(a);
	__u32 idle = balance_idle(&flow, c->now), index = flow.backend & (BALANCE_BACKENDS - 1);

	if (balance_is_over(&flow, t, idle, c)) {
		if (!bpf_map_delete_elem(map, t))
			c->removed++;
		return 0;
	}
	c->left++;
	if (flow.flags & BALANCE_FLOW_CLOSING) {
		kept[index] += idle <= BALANCE_CLOSING_IDLE;
		return 0;
	}
	kept[index]++;
	if (c->settled && !(flow.flags & ~BALANCE_FLOW_WAITS) && idle <= BALANCE_ACTIVE_IDLE)
		active[index]++;
	if (c->settled ? flow.flags & BALANCE_FLOW_WAITS && idle <= BALANCE_ACTIVE_IDLE :
			 idle <= BALANCE_YOUNG_IDLE)
		busy[index]++;
	return 0;
}

/* Run by the loader. */
SEC("syscall")
int balance_census(struct balance_census *ctx)
{
	/* programs of this kind cannot read the coarse clock, which is at most a tick behind */
	struct balance_counting c = {
		.now = bpf_ktime_get_ns() >> BALANCE_SEEN_SHIFT,
		.settled = 1,
		.closing_idle = ctx->crowded ? BALANCE_CLOSING_IDLE : BALANCE_HALF_CLOSED_IDLE,
	};

	bpf_for_each_map_elem(&flows_settled, balance_count_flow, &c, 0);
	ctx->settled = c.left;
	c.left = 0;
	c.settled = 0;
	c.closing_idle = BALANCE_CLOSING_IDLE;
	bpf_for_each_map_elem(&flows_young, balance_count_flow, &c, 0);
	ctx->young = c.left;
	ctx->removed = c.removed;
	return 0;
}

#endif
