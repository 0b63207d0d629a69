/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs that measure passing flows (passive, balance) share with their loaders, beside the gaps
 * that lib/gaps.h keeps of one: the only definition of each struct. Rust types are generated from it at
 * build time. Layouts have no implicit padding. See flows.h and docs/research/passive.md.
 */
#ifndef FLOWS_INTF_H
#define FLOWS_INTF_H

#include "../lib/gaps.h"
#include "../lib/packet.h"

/* flow_gaps.flags, too: the table's own */
#define FLOW_SLOT_OPEN 0x40 /* the epoch has something to say */
#define FLOW_SLOT_BORN 0x80 /* the loader knows who the flow is */

/* A slot in the flow table. */
struct flow_slot {
	struct flow_gaps gaps;
	struct flow_stream stream; /* TCP */
	__u32 rest; /* upper half of the flow's tag; 0: a CPU is at work on it, or it is nobody's */
};

#define FLOW_WAYS 16

/*
 * A flow has its slot in one of two buckets. The halves of their flows' tags that are searched
 * fill one cache line. With two choices of 16 slots each, 65,536 flows at 154 B each find room;
 * with two of 8, some 50 do not.
 */
struct flow_bucket {
	__u32 tag[FLOW_WAYS]; /* lower half of the flow's tag; 0: nobody's */
	struct flow_slot slot[FLOW_WAYS];
};

/* What became of a packet: it has exactly one fate. */
enum flow_fate {
	FLOW_FATE_MEASURED,
	FLOW_FATE_ACK,
	FLOW_FATE_FRAGMENT,
	FLOW_FATE_OTHER,
	FLOW_FATE_MALFORMED,
	FLOW_FATE_CONTENDED,
	FLOW_FATES
};

struct flow_counters {
	__u64 fate[FLOW_FATES];
	__u64 born;
	__u64 evicted;
	__u64 lost_events;
};

/* Events, told apart by their size. A flow's first gap: */
struct flow_born {
	__u64 tag;
	struct bw_tuple tuple;
};

/* An epoch that closed. */
struct flow_epoch {
	__u64 tag;
	struct bw_tuple tuple; /* proto 0: no packet in hand, see struct flow_born */
	__u64 end;	       /* ns, CLOCK_MONOTONIC */
	struct flow_gaps gaps;
	struct flow_estimate est;
	__u32 gone; /* its flow has left the table */
	__u32 reserved;
};

/* Where the sweep is to begin, and what it found. */
struct flow_sweep {
	__u32 bucket; /* the first; then where to go on */
	__u32 live; /* flows, without those that it forgot */
	__u32 all;  /* also epochs of flows that are not idle */
};

#endif
