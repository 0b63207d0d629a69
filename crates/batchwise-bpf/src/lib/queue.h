/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * TRACK (the paper's Algorithm 1) and the marks that say where in a byte stream items end.
 * Helper-free: compiled into the BPF programs and, for the tests, on the host.
 */
#ifndef BW_QUEUE_H
#define BW_QUEUE_H

#include "base.h"

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

BW_INLINE void bw_touch(struct bw_queue *q, __u64 now)
{
	if (now > q->time) { /* time that stands still or steps back adds nothing */
		q->integral += (now - q->time) * q->size;
		q->time = now;
	}
}

BW_INLINE void bw_enter(struct bw_queue *q, __u64 now, __u32 items)
{
	bw_touch(q, now);
	q->size += items;
}

/* Never takes more than there is: a miscount must not turn into 2^32 departures. */
BW_INLINE void bw_leave(struct bw_queue *q, __u64 now, __u32 items)
{
	bw_touch(q, now);
	if (items > q->size)
		items = q->size;
	q->size -= items;
	q->total += items;
}

/* A full list grows its newest mark instead: those items then leave together, a little late. */
BW_INLINE void bw_mark_push(struct bw_marks *l, __u32 end, __u16 calls, __u16 segs)
{
	__u32 n = l->head - l->tail;
	struct bw_mark *m;

	if (n >= BW_MARKS) {
		m = &l->m[(l->head - 1) & (BW_MARKS - 1)];
		m->end = end;
		m->calls += calls;
		m->segs += segs;
		return;
	}
	m = &l->m[l->head & (BW_MARKS - 1)];
	m->end = end;
	m->calls = calls;
	m->segs = segs;
	l->head++;
}

/* Moves the newest mark's end, if there is one: the call it stands for grew or shrank. */
BW_INLINE int bw_mark_move_last(struct bw_marks *l, __u32 end)
{
	if (l->head == l->tail)
		return 0;
	l->m[(l->head - 1) & (BW_MARKS - 1)].end = end;
	return 1;
}

/* Takes out the marks that end at or before `upto`; adds up what they stand for. */
BW_INLINE void bw_mark_pop(struct bw_marks *l, __u32 upto, __u32 *calls, __u32 *segs)
{
	__u32 c = 0, s = 0, tail = l->tail;

	for (int i = 0; i < BW_MARKS; i++) {
		struct bw_mark *m = &l->m[tail & (BW_MARKS - 1)];

		if (tail == l->head || bw_after(m->end, upto))
			break;
		c += m->calls;
		s += m->segs;
		tail++;
	}
	l->tail = tail;
	*calls = c;
	*segs = s;
}

#endif
