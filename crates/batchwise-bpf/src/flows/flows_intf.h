/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs that measure passing flows (passive, balance) share with their loaders and with
 * host-side tests: the only definition of each struct. Rust types are generated from it at build time.
 * Layouts have no implicit padding.
 */
#ifndef BW_FLOWS_INTF_H
#define BW_FLOWS_INTF_H

#include <linux/types.h>

/* ---- Gaps between the packets of one direction, see lib/gaps.h and docs/research/passive.md ---- */

#define BW_MODES 8

/* Gaps of about the same length. */
struct bw_mode {
	__u32 sum; /* of the gaps, in units of 2^BW_GAP_SHIFT ns */
	__u16 count;
	__u16 marked; /* of these: may be pauses between batches */
};

/* bw_gaps.flags */
enum bw_gaps_flag {
	BW_GAPS_ACKS = 0x1, /* marks tell which packets a response triggered (TCP), not only sizes */
	BW_GAPS_FULL = 0x2, /* a counter is at its end: close the epoch */
	BW_GAPS_AFTER_FULL = 0x4, /* the last packet was full-sized */
	BW_GAPS_FLIGHT = 0x8,	  /* requests in flight are kept, not modes */
	BW_GAPS_BURSTS = 0x10,	  /* modes are kept for now: the client sends bursts */
};

#define BW_FLIGHT 8

/* Requests in flight, and an epoch of their latencies; times in 2^BW_GAP_SHIFT ns, see lib/flight.h. */
struct bw_flight {
	__u32 sent[BW_FLIGHT]; /* when they were sent: a ring */
	__u64 sum;	/* of the epoch's latencies */
	__u64 pure_ack_sum; /* of those that only a pure ACK ended */
	__u32 count;	/* latencies in sum */
	__u32 gaps;	/* between packets that count */
	__u32 usual;	/* moving average of latencies; 0: none yet */
	__u32 begun;	/* requests, in as many epochs as it takes to tell bursts */
	__u32 alone;	/* of these: without news of the server */
	__u16 pure_acks; /* latencies in pure_ack_sum */
	__u16 missing;	/* bytes below the highest that were not seen yet */
	__u8 head;	/* position of the oldest */
	__u8 len;	/* how many are in flight */
	__u8 cap;	/* most that are; 0: not known */
	__u8 pending;	/* more than cap, seen once */
	__u8 tainted;	/* of len: delayed by a retransmission */
	__u8 late;	/* packets that came after others: they may be resent needlessly */
	__u8 grows;	/* the burst that goes on began with nothing in flight */
	__u8 sure;	/* len is right: it was seen to be 0 */
};

/* An open epoch of one flow. All zero: a flow without a packet. */
struct bw_gaps {
	__u64 start; /* ns, the packet that opened it */
	__u64 last;  /* ns, the last packet that counts; pure ACKs do not */
	union {
		struct {
			struct bw_mode mode[BW_MODES]; /* ascending, the empty ones last */
			__u8 lo[BW_MODES]; /* their extent as codes, 8 an octave; 255: empty */
			__u8 hi[BW_MODES];
		};
		struct bw_flight flight; /* with BW_GAPS_FLIGHT */
	};
	__u16 discarded; /* gaps that no counter had room for */
	__u16 idle;	 /* gaps beyond all latencies: idle_ns x 2^BW_IDLE_SHIFT */
	__u16 resent;	 /* gaps before a retransmission */
	__u8 flags;
	__u8 largest; /* largest packet seen, in units of 64 B of IP length */
};

/* What is remembered of a TCP flow from packet to packet. */
struct bw_stream {
	__u32 next_seq; /* after the highest payload seen */
	__u32 ack;	/* the highest seen */
	__u32 acked_at; /* when a pure ACK brought it, 2^BW_GAP_SHIFT ns after bw_gaps.last; 0: none since */
};

enum bw_gaps_algorithm { BW_GAPS_AUTO, BW_GAPS_MODES, BW_GAPS_FIXED };

struct bw_gaps_params {
	__u64 epoch_ns; /* an epoch lasts at least this */
	__u64 max_ns;	/* and at most this while it has fewer than min_gaps marked; at most 30 s */
	__u64 idle_ns;	/* gaps as long as this may be timeouts or idle time; at most 3 s */
	__u64 fixed_ns; /* BW_GAPS_FIXED: a longer gap begins a batch */
	enum bw_gaps_algorithm algorithm;
	__u32 min_gaps;
};

/* bw_estimate.flags */
enum bw_estimate_flag {
	BW_EST_STALLED = 0x1, /* nothing but retransmissions and waiting: no latency */
};

/* What a closed epoch says. */
struct bw_estimate {
	__u64 latency; /* ns, mean; 0: not known */
	__u64 ibg;     /* ns, mean pause between batches; 0: not known */
	__u32 batches;
	__u32 gaps; /* all that were seen */
	__u32 idle; /* of these: taken for timeouts, think or idle time */
	__u32 confidence; /* 0 to 1000 */
	__u32 flags;
	__u32 reserved;
};

/* ---- Flows that pass a vantage point, see flows.h and docs/research/passive.md ---- */

/* bw_gaps.flags, too: the table's own */
#define BW_SLOT_OPEN 0x40 /* the epoch has something to say */
#define BW_SLOT_BORN 0x80 /* the loader knows who the flow is */

/* A slot in the flow table. */
struct bw_slot {
	struct bw_gaps gaps;
	struct bw_stream stream; /* TCP */
	__u32 rest; /* upper half of the flow's tag; 0: a CPU is at work on it, or it is nobody's */
};

#define BW_WAYS 16

/*
 * A flow has its slot in one of two buckets. The halves of their flows' tags that are searched
 * fill one cache line. With two choices of 16 slots each, 65,536 flows at 154 B each find room;
 * with two of 8, some 50 do not.
 */
struct bw_bucket {
	__u32 tag[BW_WAYS]; /* lower half of the flow's tag; 0: nobody's */
	struct bw_slot slot[BW_WAYS];
};

/* Whose packet it is, as the client sent it. */
struct bw_tuple {
	__u8 src[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u8 dst[16];
	__u16 sport; /* host order, as dport */
	__u16 dport;
	__u8 proto;
	__u8 reserved;
	__u16 backend; /* that a load balancer sends it to; 0: none */
} __attribute__((aligned(8)));

/* What became of a packet: it has exactly one fate. */
enum bw_fate {
	BW_FATE_MEASURED,
	BW_FATE_ACK,
	BW_FATE_FRAGMENT,
	BW_FATE_OTHER,
	BW_FATE_MALFORMED,
	BW_FATE_CONTENDED,
	BW_FATES
};

struct bw_counters {
	__u64 fate[BW_FATES];
	__u64 born;
	__u64 evicted;
	__u64 lost_events;
};

/* Events, told apart by their size. A flow's first gap: */
struct bw_born {
	__u64 tag;
	struct bw_tuple tuple;
};

/* An epoch that closed. */
struct bw_epoch {
	__u64 tag;
	struct bw_tuple tuple; /* proto 0: no packet in hand, see struct bw_born */
	__u64 end;	       /* ns, CLOCK_MONOTONIC */
	struct bw_gaps gaps;
	struct bw_estimate est;
	__u32 gone; /* its flow has left the table */
	__u32 reserved;
};

/* Where the sweep is to begin, and what it found. */
struct bw_sweep {
	__u32 bucket; /* the first; then where to go on */
	__u32 live; /* flows, without those that it forgot */
	__u32 all;  /* also epochs of flows that are not idle */
};

#endif
