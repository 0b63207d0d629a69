/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Matching: which request a response answers, first in, first out, and histograms of how long that took.
 * A client's request lasts from its send call to the read of its response, a server's from its arrival
 * to its response. Helper-free.
 *
 * A client cannot see which of its pipelined requests a response answers: a server may answer several
 * with one write. But a response acknowledges what had arrived before it was sent, and a server answers
 * all that it has read. So a response answers at least what the one before it acknowledged, one at least,
 * and at most what it acknowledges itself; in between, its length decides, by the mean so far.
 */
#ifndef BW_ASKS_H
#define BW_ASKS_H

#include "queue.h"

/* Log-linear: 32 buckets to the octave, each at most 1/32 wide. */
#define BW_HIST_SUB 5

BW_INLINE __u32 bw_hist_bucket(__u64 ns)
{
	__u64 v = ns >> BW_HIST_SHIFT;
	__u32 shift = 0;

	if (v > 0xffffffff)
		v = 0xffffffff;
	if (v >> (16 + BW_HIST_SUB + 1))
		shift = 16;
	if (v >> (shift + 8 + BW_HIST_SUB + 1))
		shift += 8;
	if (v >> (shift + 4 + BW_HIST_SUB + 1))
		shift += 4;
	if (v >> (shift + 2 + BW_HIST_SUB + 1))
		shift += 2;
	if (v >> (shift + 1 + BW_HIST_SUB + 1))
		shift += 1;
	if (v >> (shift + BW_HIST_SUB + 1))
		shift += 1;
	return (shift << BW_HIST_SUB) + (v >> shift);
}

BW_INLINE void bw_hist_add(struct bw_hist *h, __u64 ns)
{
	__u32 i = bw_hist_bucket(ns);

	if (i >= BW_HIST_BUCKETS)
		return;
	h->count[i]++;
	h->sum += ns;
}

/* Nothing is known of what is under way. */
BW_INLINE void bw_asks_reset(struct bw_asks *a, __u32 snd_una)
{
	a->head = a->mid = a->tail = 0;
	a->acked = snd_una;
	a->bytes = 0;
}

BW_INLINE struct bw_ask *bw_ask(struct bw_asks *a, __u32 n)
{
	return &a->ask[n & (BW_ASKS - 1)];
}

/* A request: a client's is sent, a server's arrives, and ends there in the stream. */
BW_INLINE void bw_asks_begin(struct bw_asks *a, __u32 end, __u64 now, __u32 *unmatched)
{
	struct bw_ask *ask;

	if (a->head - a->tail >= BW_ASKS) {
		(*unmatched)++;
		return;
	}
	ask = bw_ask(a, a->head);
	ask->end = end;
	ask->at = now >> BW_ASK_SHIFT;
	a->head++;
}

/* At a client: the newest request's end moves, as its call was continued. */
BW_INLINE void bw_asks_move_last(struct bw_asks *a, __u32 end)
{
	if (a->head != a->mid)
		bw_ask(a, a->head - 1)->end = end;
}

/* The oldest request is over. */
BW_INLINE void bw_asks_end(struct bw_asks *a, struct bw_hist *h, __u64 now)
{
	__u32 took = (__u32)(now >> BW_ASK_SHIFT) - bw_ask(a, a->tail)->at;

	a->tail++;
	if (h)
		bw_hist_add(h, (__u64)took << BW_ASK_SHIFT);
}

/* At a client: a response ends at `end`, of so many bytes as arrived; its last segment acknowledges `ack`. */
BW_INLINE void bw_asks_answer(struct bw_asks *a, __u32 end, __u32 ack, __u32 *guessed)
{
	__u32 most, n = 0;

	/* how many a response of this length answers on average, rounded */
	most = a->answered ? (a->bytes * a->answers + a->answered / 2) / a->answered : 1;
	for (int i = 0; i < BW_ASKS && a->mid != a->head; i++) {
		struct bw_ask *ask = bw_ask(a, a->mid);
		int sure = !n || !bw_after(ask->end, a->acked);

		if (bw_after(ask->end, ack))
			break;
		if (!sure && n >= most) {
			(*guessed)++;
			break;
		}
		*guessed += !sure;
		ask->end = end;
		a->mid++;
		n++;
	}
	a->acked = ack;
	a->answered += a->bytes;
	a->answers += n;
	a->bytes = 0;
	if (a->answered >> 40) { /* the product above stays below 2^64 */
		a->answered >>= 1;
		a->answers >>= 1;
	}
}

/* At a client: it has read up to `upto`. */
BW_INLINE void bw_asks_read_answers(struct bw_asks *a, struct bw_hist *h, __u32 upto, __u64 now)
{
	for (int i = 0; i < BW_ASKS && a->tail != a->mid; i++) {
		if (bw_after(bw_ask(a, a->tail)->end, upto))
			break;
		bw_asks_end(a, h, now);
	}
}

/* At a server: it has read up to `upto`. */
BW_INLINE void bw_asks_take(struct bw_asks *a, __u32 upto)
{
	for (int i = 0; i < BW_ASKS && a->mid != a->head; i++) {
		if (bw_after(bw_ask(a, a->mid)->end, upto))
			break;
		a->mid++;
	}
}

/* At a server: it answers all that it has read. */
BW_INLINE void bw_asks_answered(struct bw_asks *a, struct bw_hist *h, __u64 now)
{
	for (int i = 0; i < BW_ASKS && a->tail != a->mid; i++)
		bw_asks_end(a, h, now);
}

/* What is under way now has lasted so long, and nobody knows how much longer. */
BW_INLINE void bw_asks_censor(struct bw_asks *a, struct bw_hist *h, __u64 now)
{
	for (int i = 0; i < BW_ASKS && a->tail + i != a->head; i++) {
		__u32 took = (__u32)(now >> BW_ASK_SHIFT) - bw_ask(a, a->tail + i)->at;

		if (h && (__s32)took >= 0)
			bw_hist_add(h, (__u64)took << BW_ASK_SHIFT);
	}
}

#endif
