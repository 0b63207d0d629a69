/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs that sense and tune share with their loader and with host-side tests: the only
 * definition of each struct. Rust types are generated from it at build time. Layouts have no implicit
 * padding.
 */
#ifndef BW_SENSE_INTF_H
#define BW_SENSE_INTF_H

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
enum bw_arm { BW_ARM_ON, BW_ARM_OFF };

enum bw_controls_size {
	BW_CONTROLS = 1024, /* so many services, from either side, can be switched */
};

/* What the agent decided for a service. */
struct bw_control {
	enum bw_arm arm;
};

/* Nobody's window is longer; who counts all the time says so again and again. */
#define BW_OPEN_MOST 4000000000ULL /* ns */

#define BW_MARKS 32 /* a power of two */

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
	__u64 bytes_sent; /* of them, acknowledged by the peer */
	__u64 segs; /* with data, sent and received */
	__u64 segs_sent; /* of them, sent */
	__u64 segs_begin; /* `segs` when the epoch's first event came */
	__u32 outstanding; /* bytes handed over, not yet acknowledged */
	__u32 srtt_us;
	__u32 rtt_min_us;
	__u32 nagle_off; /* tp->nonagle & TCP_NAGLE_OFF */
	__u32 mss; /* bytes of a full segment */
	__u32 corked; /* tp->nonagle & TCP_NAGLE_CORK */
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
	__u32 unmatched; /* requests that were one too many under way */
	__u32 guessed; /* where only the length of the response told how many it answers */
	struct bw_sock_info info;
	__u64 peer_open_until; /* ns, CLOCK_MONOTONIC: the peer counts until then, and wants our queues */
	struct bw_peer_queue peer_hint; /* requests as the peer's application knows them */
	__u32 epoch; /* when counting last began, see members.h */
	__u32 app_setting_off; /* the application asked for TCP_NODELAY */
	__u64 cookie;
	__u64 born; /* ns, CLOCK_MONOTONIC */
	__u8 local_addr[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
};

/*
 * How often the programs ran on a CPU, on a line of its own: what counting costs is this, at the prices
 * that the agent has measured. Caches are colder than when it did, so some runs are timed.
 */
struct bw_runs {
	__u64 member;  /* at a segment, a read or a send of a watched socket */
	__u64 foreign; /* of another one */
	__u64 started; /* connections that became members */
	__u64 timed; /* of `member`, those whose time was taken, */
	__u64 took; /* ns: and how long they ran */
	__u64 untimed; /* so many runs from now on are not timed */
	__u64 reserved[2];
};

#define BW_TIMED_EVERY 61 /* prime: else the same hooks of each request would be timed */
#define BW_TIMED_MOST 20000 /* ns: what takes longer was interrupted */

#define BW_MOST_CPUS 1024 /* a power of two; above, CPUs share lines */

/* What the agent is handed of a connection that has had no event since it was told of it. */
struct bw_quiet {
	__u64 cookie;
	__u64 born;
	struct bw_sock_info info;
	__u32 app_setting_off;
	__u32 reserved;
};

/* A descriptor of a watched socket, and whose it is. */
struct bw_owner {
	__u64 cookie;
	__u32 tgid;
	__u32 fd;
};

/* What bw_dump writes before each. */
enum bw_entry {
	BW_ENTRY_RECORD, /* a bw_record, and its version as it was read */
	BW_ENTRY_HELD, /* likewise: no event in this epoch, so what was queued has been all along */
	BW_ENTRY_QUIET, /* a bw_quiet */
};

#define BW_PAGE (1 << 20)
#define BW_ENTRY_MOST (sizeof(__u64) + sizeof(struct bw_record) + sizeof(__u64))

/*
 * Entries that bw_dump hands over, until the reader takes them. An iterator's own buffer has room for 24 records. To
 * go on after it, the kernel walks past every socket of the bucket up to where it stopped
 * (bpf_sk_storage_map_seq_find_next()), and there are as many buckets as CPUs: with two, 50,000 sockets took 3 s.
 */
struct bw_page {
	__u64 used;
	__u8 bytes[BW_PAGE];
};

enum bw_tails_size {
	BW_TAILS = 64, /* so many services, from either side, have histograms */
	BW_HIST_SHIFT = 5,
	BW_HIST_BUCKETS = 896,
};

/* Latencies of requests, in ns >> BW_HIST_SHIFT: see lib/asks.h. */
struct bw_hist {
	__u64 sum; /* ns */
	__u32 count[BW_HIST_BUCKETS];
};

/* Which request a response answers is told for so many at once on a connection; a power of two. */
#define BW_ASKS 128
#define BW_ASK_SHIFT 5 /* 32 ns: 32 bits wrap in 137 s */

struct bw_ask {
	__u32 end; /* of the request; at a client, once it is answered, of its response */
	__u32 at;  /* when it began, in 2^BW_ASK_SHIFT ns */
};

#define BW_SIZES 16 /* powers of two of bytes that requests have; a power of two */

/* Requests under way, oldest first. */
struct bw_asks {
	__u32 head; /* free-running */
	__u32 mid;  /* from here on: not answered (client), not read (server) */
	__u32 tail; /* from here on: not over */
	__u32 acked; /* client: what the last response acknowledged */
	__u64 bytes; /* client: of the response that is arriving */
	__u64 answered; /* client: bytes of responses so far, */
	__u64 answers; /* and how many requests they answered */
	__u32 merged; /* requests that are in others' entries, as there was no room */
	__u32 asked;  /* client: where the last request ended that was answered */
	__u32 owed;   /* client: bytes of answers to requests that were taken to be answered before */
	__u32 behind; /* client: requests from before the reset may still be under way */
	__u32 length[BW_SIZES]; /* client: of responses, bytes, by the requests' size; 0: not known */
	struct bw_ask ask[BW_ASKS];
	__u8 more[BW_ASKS]; /* of them, in each entry */
};

#define BW_LOG 16 /* a power of two */

/* A segment that arrived, as the socket's state was before it was processed. */
struct bw_arrival {
	__u64 time;	/* ns */
	__u32 number; /* counts arrivals from 1: tells the reader that the entry is new */
	__u32 last_tx; /* tp->tcp_wstamp_ns in 2^10 ns, where a delayed ACK may have left */
	__u32 seq;
	__u32 ack;
	__u32 rcv_wup;	/* tp->rcv_wup */
	__u32 extent; /* payload length, segments, PSH: see bw_arrival_extent() */
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
	__u32 logged_epoch; /* as bw_record.epoch */
	__u32 reserved_logged[28];

	struct bw_arrival log[BW_LOG];

	/* process context's alone */
	__u32 tail;  /* arrivals worked off */
	__u32 una;   /* the peer has acknowledged up to here */
	__u32 wend;  /* the application has handed over up to here */
	__u32 rcv;   /* received in order up to here */
	__u32 read;  /* the application has read up to here */
	__u32 acked; /* we have acknowledged up to here */
	__u32 next_option; /* which queue the exchange sends next */
	__u32 silent; /* the callback before each segment is off while nothing is counted */
	__u64 option_sent; /* ns */
	__u64 state_sent; /* ns */
	__u64 hint_advertised;   /* ns: `time` of the hint that was advertised last */
	__u32 told; /* bw_dump's alone: the record's version that the agent had last; 0: none */
	__u32 censored; /* bw_dump's alone: the epoch whose unfinished requests are in the histogram */
	__u32 tails; /* the index of the service's histogram; BW_TAILS: none */
	__u32 reserved_tails;
	struct bw_record rec;
	struct bw_marks out;	 /* send calls not yet acknowledged */
	struct bw_marks in_read; /* received messages not yet read */
	struct bw_marks in_ack;	 /* received messages not yet acknowledged */
	struct bw_asks asks;
};

#endif
