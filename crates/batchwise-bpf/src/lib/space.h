/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How much TCP can send at once: the twin of batchwise-core's `window`. Helper-free.
 */
#ifndef WINDOW_SPACE_H
#define WINDOW_SPACE_H

#include "base.h"

#define WINDOW_MOST_SEGMENTS (1 << 30) /* more than any congestion window: their bytes fit a __s64 */

/* The sending side of a connection, as `struct tcp_sock` has it. */
struct window_sender {
	__u32 cwnd;	 /* segments */
	__u32 mss;	 /* bytes */
	__u32 unacked;	 /* segments */
	__u32 sacked;
	__u32 lost;
	__u32 retrans;
	__u32 flight;	 /* bytes, snd_nxt - snd_una */
	__u32 peer;	 /* bytes, snd_wnd */
	__u32 unsent;	 /* bytes, write_seq - snd_nxt */
	__u32 buffer;	 /* bytes */
	__u32 device;	 /* bytes, window_device_room() */
};

/* What TCP gives to the device at once: TCP small queues. */
BW_INLINE __u32 window_device_room(__u64 pacing_rate, __u32 mss, __u32 queued)
{
	__u64 limit = pacing_rate >> 10, least = 3 * (__u64)mss, room;

	limit = limit < least ? least : limit;
	if (queued > limit)
		return 0;
	room = limit - queued;
	room = room < mss ? mss : room;
	return room < ~0U ? room : ~0U;
}

/* All that was handed over has arrived: the space will not grow. */
BW_INLINE int window_is_idle(const struct window_sender *s)
{
	return !s->unacked && !s->unsent;
}

BW_INLINE __u32 window_space(const struct window_sender *s, __u32 slack)
{
	__s64 window, peer, space, least = window_is_idle(s) ? s->mss : 0;

	window = (__s64)s->cwnd - s->unacked + s->sacked + s->lost - s->retrans;
	if (window > WINDOW_MOST_SEGMENTS)
		window = WINDOW_MOST_SEGMENTS;
	window = window < 0 ? 0 : window * s->mss;
	peer = (__s64)s->peer - s->flight;
	peer = peer < 0 ? 0 : peer;
	space = window < peer ? window : peer;
	space = (space < s->device ? space : s->device) + slack - s->unsent;
	space = space < least ? least : space;
	return space < s->buffer ? space : s->buffer;
}

/* What congestion window and peer allow, whatever the device takes. */
BW_INLINE __u32 window_allowed(const struct window_sender *s)
{
	struct window_sender open = *s;

	open.device = ~0U;
	return window_is_idle(s) ? ~0U : window_space(&open, 0);
}

#endif
