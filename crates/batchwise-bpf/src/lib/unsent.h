/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Unsent: handed over by the application and not yet transmitted, and whether Nagle's algorithm holds it. What is
 * unsent when an event comes has been since the event before: nothing of it has left meanwhile. And what the peer has
 * unsent, as far as an acknowledgment of ours shows it. Helper-free.
 */
#ifndef SENSE_UNSENT_H
#define SENSE_UNSENT_H

#include "base.h"

/* What waits to leave. */
enum sense_backlog {
	SENSE_BACKLOG_NONE,
	SENSE_BACKLOG_SOME, /* for the window, pacing, a cork, the queue below */
	SENSE_BACKLOG_HELD, /* less than a segment, for an acknowledgment */
	SENSE_BACKLOGS,
};

/* Time in which something waited, ns; only grows. */
struct sense_unsent {
	__u64 time;
	__u64 held; /* of it */
	__u64 acks; /* in which the peer waited for an acknowledgment */
};

/* `nagled`: what Nagle's algorithm holds is shorter than this; 0: it holds nothing now. */
BW_INLINE enum sense_backlog sense_backlog(__u32 write_seq, __u32 snd_nxt, __u32 nagled)
{
	if (!bw_after(write_seq, snd_nxt))
		return SENSE_BACKLOG_NONE;
	return write_seq - snd_nxt < nagled ? SENSE_BACKLOG_HELD : SENSE_BACKLOG_SOME;
}

/* There was this backlog for so long. */
BW_INLINE void sense_unsent_add(struct sense_unsent *u, enum sense_backlog backlog, __u64 ns)
{
	if (backlog == SENSE_BACKLOG_NONE)
		return;
	u->time += ns;
	if (backlog == SENSE_BACKLOG_HELD)
		u->held += ns;
}

#endif
