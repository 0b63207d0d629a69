/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The exchange's TCP option (docs/research/exchange.md): encoding, decoding, and adding up counters that
 * wrap. Helper-free: compiled into the BPF programs and, for the tests, on the host.
 */
#ifndef SENSE_WIRE_H
#define SENSE_WIRE_H

#include "queue.h"

#define SENSE_OPT_KIND 253	   /* RFC 4727, shared experimental use */
#define SENSE_OPT_EXID 0x4257 /* RFC 6994 experiment identifier: "BW" */
#define SENSE_OPT_HELLO_LEN 4 /* on SYN and SYN-ACK: "I speak it" */
#define SENSE_OPT_LEN 16	   /* one queue */

/* The `unit` of what is no queue of TCP's; its `queue` says what it is. */
#define SENSE_WIRE_AGENT 3
#define SENSE_WIRE_STATE 0 /* for how long the agent counts, in place of an integral */
#define SENSE_WIRE_HINT 1	/* requests, from the application's own create() and complete() */

#define SENSE_WIRE_TIME_SHIFT 10  /* 1.024 us: 28 bits wrap in 275 s */
#define SENSE_WIRE_BYTES_SHIFT 10 /* bytes are integrated as KiB */
#define SENSE_WIRE_TIME_MASK 0x0fffffffU

/* A queue of the peer: the last raw counters from the wire, and what they add up to. */
struct sense_peer_queue {
	__u64 time;	/* units of 2^SENSE_WIRE_TIME_SHIFT ns */
	__u64 integral; /* as on the wire */
	__u64 total;	/* items */
	__u32 raw_time;
	__u32 raw_integral;
	__u32 raw_total;
	__u32 heard; /* options accumulated for this queue */
};

/* A decoded option. */
struct sense_wire {
	__u32 unit;
	__u32 queue;
	__u32 time;
	__u32 total;
	__u32 integral;
};

BW_INLINE void sense_put32(__u8 *p, __u32 v)
{
	p[0] = v >> 24;
	p[1] = v >> 16;
	p[2] = v >> 8;
	p[3] = v;
}

BW_INLINE __u32 sense_get32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

BW_INLINE void sense_wire_header(__u8 *opt, __u8 len)
{
	opt[0] = SENSE_OPT_KIND;
	opt[1] = len;
	opt[2] = SENSE_OPT_EXID >> 8;
	opt[3] = SENSE_OPT_EXID & 0xff;
}

/* Writes SENSE_OPT_LEN bytes. */
BW_INLINE void sense_wire_encode(__u8 *opt, __u32 unit, __u32 queue, const struct sense_queue *q)
{
	__u32 time = (q->time >> SENSE_WIRE_TIME_SHIFT) & SENSE_WIRE_TIME_MASK;
	int shift = SENSE_WIRE_TIME_SHIFT + (unit == SENSE_BYTES ? SENSE_WIRE_BYTES_SHIFT : 0);

	sense_wire_header(opt, SENSE_OPT_LEN);
	sense_put32(opt + 4, (unit << 2 | queue) << 28 | time);
	sense_put32(opt + 8, q->total);
	sense_put32(opt + 12, q->integral >> shift);
}

/*
 * Writes SENSE_OPT_LEN bytes; `open`: for so many ns from now the sender counts, and would hear of the
 * receiver's queues.
 */
BW_INLINE void sense_wire_encode_state(__u8 *opt, __u64 now, __u64 open)
{
	struct sense_queue state = { .time = now, .integral = open };

	sense_wire_encode(opt, SENSE_WIRE_AGENT, SENSE_WIRE_STATE, &state);
}

/* 0, or -1 for what is not such an option. */
BW_INLINE int sense_wire_decode(const __u8 *opt, struct sense_wire *w)
{
	__u32 head = sense_get32(opt + 4);

	if (opt[0] != SENSE_OPT_KIND || opt[1] != SENSE_OPT_LEN || opt[2] != SENSE_OPT_EXID >> 8 ||
	    opt[3] != (SENSE_OPT_EXID & 0xff))
		return -1;
	w->unit = head >> 30;
	w->queue = head >> 28 & 3;
	w->time = head & SENSE_WIRE_TIME_MASK;
	w->total = sense_get32(opt + 8);
	w->integral = sense_get32(opt + 12);
	return 0;
}

/*
 * Adds a decoded option to what the peer's queue has come to; -1 for one that is not newer (a TSO
 * burst repeats its option in every segment, retransmissions reorder). Counters of a connection
 * begin at zero, so the first one heard is itself a difference.
 */
BW_INLINE int sense_wire_add(struct sense_peer_queue *p, const struct sense_wire *w)
{
	__u32 dt = (w->time - p->raw_time) & SENSE_WIRE_TIME_MASK;

	if (p->heard && (dt == 0 || dt > SENSE_WIRE_TIME_MASK / 2))
		return -1;
	if (p->heard)
		p->time += dt;
	p->total += (__u32)(w->total - p->raw_total);
	p->integral += (__u32)(w->integral - p->raw_integral);
	p->raw_time = w->time;
	p->raw_total = w->total;
	p->raw_integral = w->integral;
	p->heard++;
	return 0;
}

#endif
