/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * TRACK (the paper's Algorithm 1) and the marks that say where in a byte stream items end.
 * Helper-free: compiled into the BPF programs and, for the tests, on the host.
 */
#ifndef SENSE_QUEUE_H
#define SENSE_QUEUE_H

#include "base.h"

/* What is counted as one item of a queue. */
enum sense_unit { SENSE_CALLS, SENSE_BYTES, SENSE_SEGS, SENSE_UNITS };

/* The paper's three queues (§3.2) and the application's own time. */
enum sense_queue_id { SENSE_UNACKED, SENSE_UNREAD, SENSE_ACKDELAY, SENSE_TURNAROUND, SENSE_QUEUES };

/* Algorithm 1's 4-tuple. */
struct sense_queue {
	__u64 time;	/* ns, CLOCK_MONOTONIC, of the last change */
	__u64 integral; /* items x ns */
	__u64 total;	/* items that left */
	__u32 size;	/* items in the queue */
	__u32 reserved;
};

/* Lists of marks have room for so many; powers of two. */
#define SENSE_MARKS 32
#define SENSE_ACK_MARKS 2 /* an acknowledgment covers all that has come: it leaves no mark before the newest */

/* Where in the byte stream items end. */
struct sense_mark {
	__u32 end; /* sequence number after the last byte */
	__u32 calls;
	__u32 segs;
};

/* The marks that one consumer has not passed yet, oldest first: of which of a list's places. */
struct sense_marks {
	__u32 head; /* free-running */
	__u32 tail;
};

BW_INLINE void sense_touch(struct sense_queue *q, __u64 now)
{
	if (now > q->time) { /* time that stands still or steps back adds nothing */
		q->integral += (now - q->time) * q->size;
		q->time = now;
	}
}

BW_INLINE void sense_enter(struct sense_queue *q, __u64 now, __u32 items)
{
	sense_touch(q, now);
	q->size += items;
}

/* Never takes more than there is: a miscount must not turn into 2^32 departures. */
BW_INLINE void sense_leave(struct sense_queue *q, __u64 now, __u32 items)
{
	sense_touch(q, now);
	if (items > q->size)
		items = q->size;
	q->size -= items;
	q->total += items;
}

/* A full list of `most` grows its newest mark instead: those items then leave together, a little late. */
BW_INLINE void sense_mark_push(struct sense_marks *l, struct sense_mark *marks, __u32 most, __u32 end,
			       __u32 calls, __u32 segs)
{
	__u32 n = l->head - l->tail;
	struct sense_mark *m;

	if (n >= most) {
		m = &marks[(l->head - 1) & (most - 1)];
		m->end = end;
		m->calls += calls;
		m->segs += segs;
		return;
	}
	m = &marks[l->head & (most - 1)];
	m->end = end;
	m->calls = calls;
	m->segs = segs;
	l->head++;
}

/* Moves the newest mark's end, if there is one: the call it stands for grew or shrank. */
BW_INLINE int sense_mark_move_last(struct sense_marks *l, struct sense_mark *marks, __u32 most, __u32 end)
{
	if (l->head == l->tail)
		return 0;
	marks[(l->head - 1) & (most - 1)].end = end;
	return 1;
}

/* Takes out the marks that end at or before `upto`; adds up what they stand for. */
BW_INLINE void sense_mark_pop(struct sense_marks *l, struct sense_mark *marks, __u32 most, __u32 upto,
			      __u32 *calls, __u32 *segs)
{
	__u32 c = 0, s = 0, tail = l->tail;

	for (__u32 i = 0; i < most; i++) {
		struct sense_mark *m = &marks[tail & (most - 1)];

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
