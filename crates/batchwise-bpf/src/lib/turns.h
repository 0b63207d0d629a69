/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Turns: one end asks and the other answers, with however many writes. At a client a turn lasts from the first send
 * after a read to the last read before the next such send; at a server from the first arrival to when the
 * answer's last byte has left. Which was the last only the next turn shows: it counts the one before. Helper-free.
 *
 * Where both ends have bytes on the way at once the connection does not take turns. A turn that saw this is crossed:
 * data came from a peer that had not yet received all that was sent, or this end sent before it had read all, or a
 * client's sends are not as many as in the turn before: one of them was another request.
 */
#ifndef SENSE_TURNS_H
#define SENSE_TURNS_H

#include "base.h"

#define SENSE_WEIGHT_SHIFT 10
#define SENSE_TINY 64 /* bytes: HTTP/2's PING and WINDOW_UPDATE in a record of TLS */

/* Turns; all only grow. */
struct sense_turns {
	__u64 took; /* ns, all that are over together */
	__u64 bytes; /* that asked, in those */
	__u64 weighted; /* byte x 2^SENSE_WEIGHT_SHIFT ns: how long each of these took */
	__u32 begun;
	__u32 over;
	__u32 crossed; /* of those that are over */
	__u32 tiny; /* of those: not longer than what transports say of themselves */
	__u32 strays; /* answers to nothing that was taken to be under way */
	__u32 heard; /* a client: in the peer's stream, where the answer of the turn that goes on begins */
};

/* The one that goes on. */
struct sense_turn {
	__u64 began; /* ns; 0: none was seen to begin */
	__u64 answered; /* ns, so far; 0: not yet */
	__u64 uncounted; /* ns that the one before took, until it is in a histogram; 0: it is */
	__u32 from; /* where what asks begins in its stream */
	__u8 crossed;
	__u8 ahead; /* a client asks for so many more than it has seen answered, for good */
	__u8 sends; /* a client's, so far; at most 255 */
	__u8 usual; /* in the turn before; 0: there was none */
};

BW_INLINE void sense_turn_reset(struct sense_turn *t)
{
	t->began = t->answered = 0;
	t->crossed = t->sends = 0;
}

/* An answered turn is over: what asks has come to `seq`. What had left at `left` is the answer's end, if it is later. */
BW_INLINE void sense_turn_end(struct sense_turn *t, struct sense_turns *all, __u64 now, __u32 seq, __u64 left)
{
	__u32 bytes = seq - t->from;
	__u64 took;

	if (!t->answered)
		return;
	if (left > t->answered && left < now)
		t->answered = left;
	took = t->answered > t->began ? t->answered - t->began : 1;
	all->took += took;
	all->bytes += bytes;
	all->weighted += (took >> SENSE_WEIGHT_SHIFT) * bytes;
	all->over++;
	all->crossed += t->crossed || t->ahead || (t->usual && t->sends != t->usual);
	all->strays += t->ahead > 0;
	t->usual = t->sends;
	all->tiny += bytes <= SENSE_TINY;
	t->uncounted = took;
	sense_turn_reset(t);
}

/* The asking end speaks, from `seq` on; what was sent before had left at `left`. */
BW_INLINE void sense_turn_ask(struct sense_turn *t, struct sense_turns *all, __u64 now, __u32 seq, __u64 left)
{
	if (t->began && !t->answered)
		return;
	sense_turn_end(t, all, now, seq, left);
	all->begun++;
	t->began = now;
	t->from = seq;
}

/*
 * A client's second turn is over. One that began with several requests of a size and goes on with another for each
 * answer stays ahead by the others, if their answers have not come: its turns look like requests from now on.
 */
BW_INLINE void sense_turn_look_ahead(struct sense_turn *t, const struct sense_turns *all, __u32 seq, __u32 heard,
				     __u64 answers)
{
	__u64 asked = seq - t->from, answer = heard - all->heard;

	if (t->sends == 1 && t->usual > 1 && all->bytes == t->usual * asked &&
	    2 * (answers - answer) < (2ULL * t->usual - 1) * answer)
		t->ahead = t->usual - 1;
}

/* A client sends, from `seq` on, and has heard the peer up to `heard`. */
BW_INLINE void sense_turn_send(struct sense_turn *t, struct sense_turns *all, __u64 now, __u32 seq, __u32 heard)
{
	sense_turn_ask(t, all, now, seq, 0);
	if (!t->sends)
		all->heard = heard;
	t->sends += t->sends != 0xff;
}

/* The answering end speaks. */
BW_INLINE void sense_turn_answer(struct sense_turn *t, __u64 now)
{
	if (t->began)
		t->answered = now;
}

/*
 * Whether the turn that goes on is a request under way, which has so many bytes so far. Nobody answers HTTP/2's
 * WINDOW_UPDATE, PING and SETTINGS: a tiny turn counts where nearly all are tiny.
 */
BW_INLINE int sense_turn_is_under_way(const struct sense_turn *t, const struct sense_turns *all, __u32 bytes)
{
	if (!t->began || t->answered)
		return 0;
	return bytes > SENSE_TINY || 20ULL * all->tiny >= 19ULL * all->over;
}

#endif
