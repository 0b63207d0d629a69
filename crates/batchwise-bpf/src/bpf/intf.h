/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs that watch, tune and measure share with the loader and with host-side tests: the
 * only definition of each struct (the load balancer's are in balance_intf.h, the decapsulator's in
 * decap_intf.h). Rust types are generated from it at build time. Layouts have no implicit padding.
 */
#ifndef BW_INTF_H
#define BW_INTF_H

#include <linux/types.h>

/* What is counted as one item of a queue. */
enum bw_unit { BW_CALLS, BW_BYTES, BW_SEGS, BW_UNITS };

/* The paper's three queues (§3.2) and the application's own time. */
enum bw_queue_id { BW_UNACKED, BW_UNREAD, BW_ACKDELAY, BW_TURNAROUND, BW_QUEUES };

/* Algorithm 1's 4-tuple. */
struct bw_queue {
	__u64 time;	/* ns, CLOCK_MONOTONIC, of the last change */
	__u64 integral; /* items x ns */
	__u64 total;	/* items that left */
	__u32 size;	/* items in the queue */
	__u32 reserved;
};

/* A queue of the peer: the last raw counters from the wire, and what they add up to. */
struct bw_peer_queue {
	__u64 time;	/* units of 2^BW_WIRE_TIME_SHIFT ns */
	__u64 integral; /* as on the wire, see lib/wire.h */
	__u64 total;	/* items */
	__u32 raw_time;
	__u32 raw_integral;
	__u32 raw_total;
	__u32 heard; /* options accumulated for this queue */
};

/* A service as agents name it: its server's address and port, seen from one side. */
struct bw_service {
	__u8 addr[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u16 port;
	__u16 server; /* 1: its sockets here are the server's */
};

/* The arm of Nagle's algorithm that a service's sockets are to use. */
enum bw_arm { BW_ARM_WISH, BW_ARM_ON, BW_ARM_OFF };

/* What the agent decided for a service. */
struct bw_control {
	enum bw_arm arm;
	__u32 limit; /* with BW_ARM_ON: bytes held back that the next ACK releases; 0: none */
	__u32 told;  /* BW_STATE_*, for the peer's agent */
};

/* What agents tell each other about themselves (docs/exchange.md). */
#define BW_STATE_NAGLE_OFF 0x1 /* the sender's sockets send at once */
#define BW_STATE_PROBING 0x2   /* that is on trial */
#define BW_STATE_WANTS 0x4     /* the sender is measuring: count and tell */

/* The last state heard from the peer's agent. */
struct bw_peer_state {
	__u64 at; /* ns, CLOCK_MONOTONIC; 0: never */
	__u32 flags;
	__u32 reserved;
};

#define BW_MARKS 64 /* a power of two */

/* Where in the byte stream items end. */
struct bw_mark {
	__u32 end; /* sequence number after the last byte */
	__u16 calls;
	__u16 segs;
};

/* The marks that one consumer has not passed yet, oldest first. */
struct bw_marks {
	__u32 head; /* free-running */
	__u32 tail;
	struct bw_mark m[BW_MARKS];
};

/* bw_record.flags */
enum bw_record_flag {
	BW_F_SERVER = 0x1,     /* the local port is the watched one */
	BW_F_BIRTH = 0x2,      /* counted from the connection's first byte */
	BW_F_AGREED = 0x8,     /* the peer speaks the exchange */
	BW_F_LATE_SEND = 0x10, /* sends are seen only after the call (no tcp_sendmsg_locked) */
	BW_F_CLOSED = 0x20,    /* the connection is gone: this is its last record */
	BW_F_HINTED = 0x40,    /* the peer's application itself counts: it needs no queue of ours */
};

/* What the kernel itself keeps of a socket, read with the record. */
struct bw_sock_info {
	__u64 now;	/* ns, CLOCK_MONOTONIC: the counters are as of then */
	__u64 ack_left; /* ns: all that `ackdelay` holds was acknowledged then; 0: not all was */
	__u64 bytes; /* acknowledged by the peer, and received */
	__u32 outstanding; /* bytes handed over, not yet acknowledged */
	__u32 retransmits; /* segments */
	__u32 srtt_us;
	__u32 rtt_min_us;
	__u32 mss;
	__u32 nagle_off; /* tp->nonagle & TCP_NAGLE_OFF */
};

/* One connection as the agent sees it: identity, then counters. */
struct bw_record {
	__u32 version; /* odd while being written; see bw_version_bump() */
	__u32 flags;
	__u64 last; /* ns, of the last event that is counted */
	struct bw_queue q[BW_UNITS][BW_QUEUES];
	struct bw_peer_queue peer[BW_UNITS][BW_QUEUES];
	__u32 options_sent;
	__u32 options_heard;
	__u32 options_refused; /* malformed, or not newer than the last */
	__u32 overlaps; /* requests read while an earlier one had no response yet */
	struct bw_sock_info info;
	struct bw_peer_state peer_state;
	struct bw_peer_queue peer_hint; /* requests as the peer's application knows them */
	__u32 epoch; /* when counting last began, see members.h */
	__u32 wish_off; /* the application asked for TCP_NODELAY */
	__u64 cookie;
	__u64 born; /* ns, CLOCK_MONOTONIC */
	__u8 local_addr[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
};

#define BW_LOG 16 /* a power of two */

/* A segment that arrived, as the socket's state was before it was processed. */
struct bw_seen {
	__u64 time;	/* ns */
	__u32 number; /* counts arrivals from 1: tells the reader that the entry is new */
	__u32 last_tx; /* tp->tcp_wstamp_ns in 2^10 ns, where a delayed ACK may have left */
	__u32 seq;
	__u32 ack;
	__u32 rcv_wup;	/* tp->rcv_wup */
	__u32 extent; /* payload length, segments, PSH: see bw_seen_extent() */
};

/*
 * A socket's storage. Segments often arrive on one CPU while the application runs on another, and
 * a cache line that both touch costs more than all the arithmetic. So arrivals are only logged, by
 * stores to lines that the logging side never loads, and worked off by the hooks in process
 * context. Parts begin on 128-byte boundaries, since hardware prefetches lines in pairs (the
 * kernel puts 72 bytes before us).
 */
struct bw_endpoint {
	__u64 reserved[7]; /* every look-up reads this line: never written */

	/* the logging side's alone */
	__u64 logged_at;
	__u32 logged; /* arrivals, free-running */
	__u32 reserved_logged[29];

	struct bw_seen log[BW_LOG];

	/* process context's alone */
	__u32 tail;  /* arrivals worked off */
	__u32 una;   /* the peer has acknowledged up to here */
	__u32 wend;  /* the application has handed over up to here */
	__u32 rcv;   /* received in order up to here */
	__u32 read;  /* the application has read up to here */
	__u32 acked; /* we have acknowledged up to here */
	__u32 next_option; /* which queue the exchange sends next */
	__u16 limited; /* RTT_CB is ours: a batching limit is in force */
	__u16 silent;  /* the callback before each segment is off while nothing is counted */
	__u64 option_sent; /* ns */
	__u64 hint_told;   /* ns: `time` of the hint that was told last */
	struct bw_record rec;
	struct bw_marks out;	 /* send calls not yet acknowledged */
	struct bw_marks in_read; /* received messages not yet read */
	struct bw_marks in_ack;	 /* received messages not yet acknowledged */
};

/* ---- passive: gaps between the packets of one direction, see lib/gaps.h and docs/passive.md ---- */

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
	__u64 told_sum; /* of those that only a pure ACK told */
	__u32 count;	/* latencies in sum */
	__u32 gaps;	/* between packets that count */
	__u32 usual;	/* moving average of latencies; 0: none yet */
	__u32 begun;	/* requests, in as many epochs as it takes to tell bursts */
	__u32 alone;	/* of these: without news of the server */
	__u16 told;	/* latencies in told_sum */
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

/* ---- passive: flows that pass a vantage point, see flows.h and docs/passive.md ---- */

/* bw_gaps.flags, too: the table's own */
#define BW_SLOT_OPEN 0x40 /* the epoch has something to say */
#define BW_SLOT_BORN 0x80 /* the loader was told who the flow is */

/* A place in the flow table. */
struct bw_slot {
	struct bw_gaps gaps;
	struct bw_stream stream; /* TCP */
	__u32 rest; /* upper half of the flow's tag; 0: a CPU is at work on it, or it is nobody's */
};

#define BW_WAYS 16

/*
 * A flow has its place in one of two buckets. The halves of their flows' tags that are searched
 * fill one cache line. With two choices of 16 places each, 65,536 flows at 154 B each find room;
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

/* What the sweep is to look at, and what it found. */
struct bw_sweep {
	__u32 first; /* bucket */
	__u32 buckets;
	__u32 live; /* flows, without those that it forgot */
	__u32 all;  /* also epochs of flows that are not idle */
};

#endif
