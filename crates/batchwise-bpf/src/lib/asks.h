/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Matching: which request a response answers, first in, first out, and histograms of how long that took.
 * A client's request lasts from its send call to the read of its response, a server's from its arrival
 * to its response. Helper-free.
 *
 * A client cannot see which of its pipelined requests a response answers: a server may answer several
 * with one write. But a response acknowledges what had arrived before it was sent, and a server answers
 * all that it has read. So a response answers at least what the one before it acknowledged, one at least,
 * and at most what it acknowledges itself; in between, its length decides: it answers so many as would
 * together be as long. Requests of about one size are taken to have responses of one length, which is learnt where
 * only one request can be meant (a SET is long and its response short, a GET the reverse). Before that a response is
 * taken to answer one request; a shorter one shows that it answered several.
 *
 * A server that reads less than there is (Redis: 16 KiB), or answers one after another, answers fewer than it
 * acknowledges. It shows with nothing newly acknowledged: as several answers, to the byte, or as the last of the answers to
 * what was taken to be answered before. Then length alone decides.
 */
#ifndef SENSE_ASKS_H
#define SENSE_ASKS_H

#include "queue.h"

enum sense_hist_size {
	SENSE_HIST_SHIFT = 5,
	SENSE_HIST_BUCKETS = 897, /* the last is of all from 2^(32 + SENSE_HIST_SHIFT) ns, 137 s, on */
};

/* Latencies of requests, in ns >> SENSE_HIST_SHIFT. */
struct sense_hist {
	__u64 sum; /* ns */
	__u32 count[SENSE_HIST_BUCKETS]; /* wrapping */
	__u32 reserved;
};

/* Of a service. */
struct sense_tails {
	struct sense_hist matched; /* requests, each with the response that it is taken to have */
	struct sense_hist turns;
};

/* Which request a response answers is told for so many at once on a connection; a power of two. */
#define SENSE_ASKS 128
#define SENSE_ASK_SHIFT 5

/*
 * When a request began, in 32 bits: 2^SENSE_ASK_SHIFT ns since the era began, for 69 s; where it is older than the
 * era, which is then 34 s and more, SENSE_ASK_OLD and 2^SENSE_ASK_OLD_SHIFT ns (67 ms), which wrap in four years.
 */
#define SENSE_ASK_OLD 0x80000000U
#define SENSE_ASK_OLD_SHIFT 26
#define SENSE_ERA_SHIFT 35 /* ns: eras begin at multiples of 34 s */

struct sense_ask {
	__u32 end; /* of the request; at a client, once it is answered, of its response */
	__u32 at;  /* when it began, as above */
};

#define SENSE_LENGTH_IS_FIRST 0x80000000U /* of the first response, which may have answered several */

#define SENSE_SIZES 16 /* powers of two of bytes that requests have; a power of two */

/* Requests under way, oldest first. */
struct sense_asks {
	__u32 head; /* free-running */
	__u32 mid;  /* from here on: not answered (client), not read (server) */
	__u32 tail; /* from here on: not over */
	__u32 acked; /* client: what the last response acknowledged */
	__u64 bytes; /* client: of the response that is arriving */
	__u64 answered; /* client: bytes of responses so far */
	__u32 first; /* client: bytes of responses that were taken to answer one, while the length was not sure, */
	__u8 firsts; /* how many they were, */
	__u8 first_of; /* and to requests of which size: sense_asks_size() */
	__u8 in_hand; /* client: how often the server was seen to answer fewer than it had */
	__u32 era; /* its number */
	__u32 asked;  /* client: where the last request ended that was answered */
	__u32 owed;   /* client: bytes of answers to requests that were taken to be answered before */
	__u16 behind; /* client: requests from before the reset may still be under way */
	__u16 merged; /* requests that have no entry, as there was no room */
	__u32 length[SENSE_SIZES]; /* client: of responses, bytes, by the requests' size; 0: not known */
	struct sense_ask ask[SENSE_ASKS];
	__u8 more[SENSE_ASKS]; /* of them, that last as long as that one */
};

/* Log-linear: 32 buckets to the octave, each at most 1/32 wide. */
#define SENSE_HIST_SUB 5

BW_INLINE __u32 sense_hist_bucket(__u64 ns)
{
	__u64 v = ns >> SENSE_HIST_SHIFT, more, shift;

	/* at most 2^32 - 1; arithmetic throughout, as the verifier follows every branch */
	more = bw_less(0xffffffff, v);
	v = (v & (more - 1)) | (0xffffffff & -more);
	/* how far down the uppermost bit is to come */
	shift = bw_msb(v | 1 << SENSE_HIST_SUB) - SENSE_HIST_SUB;
	return (shift << SENSE_HIST_SUB) + (v >> shift) + more;
}

BW_INLINE void sense_hist_add(struct sense_hist *h, __u64 ns, __u32 requests)
{
	__u32 i = sense_hist_bucket(ns);

	/* keeps the compiler from computing an address before it was told from NULL */
	__asm__ volatile("" : "+r"(h));
	if (i >= SENSE_HIST_BUCKETS)
		return;
	h->count[i] += requests;
	h->sum += ns * requests;
}

/* Nothing is known of what is under way, between `snd_una` and `write_seq`. */
BW_INLINE void sense_asks_reset(struct sense_asks *a, __u32 snd_una, __u32 write_seq)
{
	a->head = a->mid = a->tail = 0;
	if (a->merged)
		for (int i = 0; i < SENSE_ASKS; i++)
			a->more[i] = 0;
	a->merged = 0;
	a->acked = snd_una;
	a->asked = write_seq;
	a->behind = snd_una != write_seq;
	a->owed = 0;
	a->bytes = 0;
}

BW_INLINE struct sense_ask *sense_ask(struct sense_asks *a, __u32 n)
{
	return &a->ask[n & (SENSE_ASKS - 1)];
}

/* How many requests last as long as the n-th, with it. */
BW_INLINE __u32 sense_asks_in(const struct sense_asks *a, __u32 n)
{
	return 1 + a->more[n & (SENSE_ASKS - 1)];
}

/* ns since the era began, in 2^SENSE_ASK_SHIFT. */
BW_INLINE __u64 sense_asks_clock(const struct sense_asks *a, __u64 now)
{
	return (now >> SENSE_ASK_SHIFT) - ((__u64)a->era << (SENSE_ERA_SHIFT - SENSE_ASK_SHIFT));
}

/* How old the n-th is, ns; below 0 where it begins later. */
BW_INLINE __s64 sense_asks_age(struct sense_asks *a, __u32 n, __u64 now)
{
	__u32 at = sense_ask(a, n)->at, old;

	if (at & SENSE_ASK_OLD) {
		old = ((__u32)(now >> SENSE_ASK_OLD_SHIFT) - at) & ~SENSE_ASK_OLD;
		return (__u64)old << SENSE_ASK_OLD_SHIFT;
	}
	return (sense_asks_clock(a, now) - at) << SENSE_ASK_SHIFT;
}

/* Begins another era, 34 to 69 s ago. */
BW_NOINLINE int sense_asks_begin_era(struct sense_asks *a, __u64 now)
{
	__u32 era = (now >> SENSE_ERA_SHIFT) - 1;

	if (!a)
		return 0;
	for (int i = 0; i < SENSE_ASKS && a->tail + i != a->head; i++) {
		struct sense_ask *ask = sense_ask(a, a->tail + i);
		__u64 began = now - sense_asks_age(a, a->tail + i, now);

		if (ask->at & SENSE_ASK_OLD)
			continue;
		if (began >> SENSE_ERA_SHIFT < era)
			ask->at = SENSE_ASK_OLD | (__u32)(began >> SENSE_ASK_OLD_SHIFT);
		else
			ask->at -= (era - a->era) << (SENSE_ERA_SHIFT - SENSE_ASK_SHIFT);
	}
	a->era = era;
	return 0;
}

/* A request: a client's is sent, a server's arrives, and ends there in the stream. */
BW_INLINE void sense_asks_begin(struct sense_asks *a, __u32 end, __u64 now, __u32 *unmatched)
{
	struct sense_ask *ask;

	if (sense_asks_clock(a, now) >= SENSE_ASK_OLD)
		sense_asks_begin_era(a, now);
	if (a->head - a->tail >= SENSE_ASKS) {
		/* no room: it lasts as long as the newest, and they begin when they do on average */
		__u32 newest = (a->head - 1) & (SENSE_ASKS - 1);
		__u64 later = sense_asks_clock(a, now) - a->ask[newest].at;

		a->in_hand = 0; /* else requests that are never answered would be waited for */
		if (a->mid == a->head || a->more[newest] == 0xff) {
			(*unmatched)++;
			return;
		}
		a->ask[newest].end = end;
		a->more[newest]++;
		a->merged++;
		if (later < SENSE_ASK_OLD)
			a->ask[newest].at += (__u32)later / (1 + a->more[newest]);
		return;
	}
	ask = sense_ask(a, a->head);
	ask->end = end;
	ask->at = sense_asks_clock(a, now);
	a->head++;
}

/* At a client: the newest request's end moves, as its call was continued. */
BW_INLINE void sense_asks_move_last(struct sense_asks *a, __u32 end)
{
	if (a->head != a->mid)
		sense_ask(a, a->head - 1)->end = end;
}

/* The oldest request is over. */
BW_INLINE void sense_asks_end(struct sense_asks *a, struct sense_hist *h, __u64 now)
{
	__u64 took = sense_asks_age(a, a->tail, now);
	__u32 requests = 1;

	if (a->merged) {
		requests = sense_asks_in(a, a->tail);
		a->more[a->tail & (SENSE_ASKS - 1)] = 0;
		a->merged -= requests - 1;
	}
	a->tail++;
	if (h)
		sense_hist_add(h, took, requests);
}

/* Which power of two of bytes the next request has. */
BW_INLINE __u32 sense_asks_size(struct sense_asks *a)
{
	__u32 bytes = sense_ask(a, a->mid)->end - a->asked;
	__u64 size, most;

	if (a->merged)
		bytes /= sense_asks_in(a, a->mid);
	size = bw_msb(bytes);
	most = -bw_less(SENSE_SIZES - 1, size);
	return (size | most) & (SENSE_SIZES - 1); /* the last one has all that are larger */
}

/* The length of responses to requests as long as the next one; 0: not known. */
BW_INLINE __u32 *sense_asks_length(struct sense_asks *a)
{
	__u32 size = sense_asks_size(a);

	/* keeps the compiler from computing an address before `a` was told from NULL */
	__asm__ volatile("" : "+r"(a));
	return &a->length[size & (SENSE_SIZES - 1)];
}

/* Its bytes, sure or not. */
BW_INLINE __u32 sense_length(__u32 length)
{
	return length & ~SENSE_LENGTH_IS_FIRST;
}

/* How many of `left` bytes answer the next one: as long as it is known to be, else all. */
BW_INLINE __s64 sense_asks_expected(struct sense_asks *a, __s64 left)
{
	__u32 *length = sense_asks_length(a);
	__s64 all = left & ~(left >> 63);

	*length |= ((__u32)all / sense_asks_in(a, a->mid) | SENSE_LENGTH_IS_FIRST) & -bw_less(sense_length(*length), 1);
	return sense_length(*length);
}

/* The next one is answered, by a response that ends there. */
BW_INLINE void sense_asks_pop(struct sense_asks *a, __u32 end)
{
	struct sense_ask *ask = sense_ask(a, a->mid);

	a->asked = ask->end;
	ask->end = end;
	a->mid++;
}

/*
 * So many bytes answered one request; there may be answers in it to others that were taken to be answered
 * before, as many bytes as are owed. What is owed was reckoned by the length, and is not where that was too long.
 */
BW_INLINE void sense_asks_learn(struct sense_asks *a, __u32 *length, __u32 bytes)
{
	*length = sense_length(*length);
	if (bytes < *length) {
		*length -= (*length - bytes + 1) / 2;
		a->owed = 0;
	} else if (!a->owed) {
		*length = bytes;
	}
}

/* What is left over of a response answers requests that were taken to be answered before. */
BW_INLINE void sense_asks_settle(struct sense_asks *a, __s64 left)
{
	if (left > 0)
		a->owed = left < a->owed ? a->owed - left : 0;
}

/* What is left of a response without the answer to the next one, and to those that share its entry, as many as are there. */
BW_INLINE __s64 sense_asks_left(struct sense_asks *a, __s64 left, __s64 expected)
{
	__u64 shared = expected * (sense_asks_in(a, a->mid) - 1), there, less;

	left -= expected;
	/* arithmetic, for the verifier */
	there = left & ~(left >> 63);
	less = -bw_less(there, shared);
	return left - ((there & less) | (shared & ~less));
}

/* The same. What is missing of the answer is owed: its bytes come later. */
BW_INLINE __s64 sense_asks_pay(struct sense_asks *a, __s64 left, __s64 expected)
{
	__s64 missing = expected - left;

	if (missing > 0)
		a->owed += missing < expected ? missing : expected;
	return sense_asks_left(a, left, expected);
}

/*
 * The loops stand apart, so that the verifier walks each once; the common case is inline, as a call costs 30 ns
 * (`lab run hook-cost`).
 */

/* What a response answers at least: what its bytes say, or what the one before it acknowledged. */
enum sense_asks_least { SENSE_LEAST_BYTES, SENSE_LEAST_ACKED };
#define SENSE_IN_HAND 4 /* seen so often, a server is taken to have more in hand */

/*
 * Of a response that has answered one request, `left` bytes answer others. How many requests are taken to be answered
 * though their answers are not there.
 */
BW_NOINLINE __u32 sense_asks_answer_rest(struct sense_asks *a, __u32 end, __u32 ack, __s64 left, __u64 least)
{
	__u32 guessed = 0;

	if (!a)
		return 0;
	for (int i = 0; i < SENSE_ASKS && a->mid != a->head; i++) {
		__u32 asked = sense_ask(a, a->mid)->end;
		__s64 expected;

		/* to the byte: the server has more in hand; else lengths do not tell */
		if (!(left | least))
			break;
		expected = sense_asks_expected(a, left);
		if (bw_after(asked, ack))
			break;
		/* at least half of it is to be there */
		if (2 * left < expected || left <= 0) {
			if (bw_after(asked, a->acked))
				break;
			guessed++;
		}
		left = sense_asks_pay(a, left, expected);
		sense_asks_pop(a, end);
	}
	sense_asks_settle(a, left);
	return guessed;
}

/*
 * The first response that acknowledges all from before the reset. Those before it were to that; of this one
 * newer requests have what is left. A server with more from before in hand sends more, which is given to
 * newer requests, too early, until nothing is under way. To wait for that would match a connection with one
 * request at a time one too late for the whole window, and those are more common.
 */
BW_NOINLINE __u32 sense_asks_answer_behind(struct sense_asks *a, __u32 end, __u32 ack, __u32 bytes)
{
	__u64 expected, older;
	__u32 size;

	if (!a || a->mid == a->head)
		return 0;
	expected = sense_asks_expected(a, bytes);
	older = a->asked - a->acked;
	size = sense_ask(a, a->mid)->end - a->asked;
	if (size)
		older = expected * older / size;
	return sense_asks_answer_rest(a, end, ack, (__s64)bytes - (__s64)older, SENSE_LEAST_ACKED);
}

/*
 * A response to requests of which no length is sure is taken to answer one. Where it is shorter than the ones before,
 * these answered several: so many bytes of theirs are left then. After 255 of which none was shorter the length is sure.
 */
BW_NOINLINE __s64 sense_asks_first(struct sense_asks *a, __u32 *length, __u32 bytes, __s64 left)
{
	__u32 size, firsts;

	if (!a || !length)
		return left;
	size = sense_asks_size(a);
	if (a->first_of != size)
		a->first = a->firsts = 0;
	a->first_of = size;
	firsts = a->firsts;
	if (left < 0 && bytes) {
		*length = bytes | SENSE_LENGTH_IS_FIRST;
		left = (__s64)a->first - (__s64)firsts * bytes;
		firsts = a->first / bytes;
	}
	a->first += bytes;
	a->firsts = ++firsts;
	if (firsts > 0xff)
		*length = sense_length(*length);
	return left;
}

/* See `in_hand`. SENSE_LENGTH_IS_FIRST makes a length that is not sure longer than any response. */
BW_INLINE __u32 sense_asks_least(struct sense_asks *a, __u32 ack, __u32 bytes, __u32 length)
{
	if (a->in_hand < SENSE_IN_HAND && ack == a->acked && length && bytes / length > 1 && !(bytes % length))
		a->in_hand++;
	return a->in_hand < SENSE_IN_HAND ? SENSE_LEAST_ACKED : SENSE_LEAST_BYTES;
}

/* A response arrived, and it is not the common case of sense_asks_answer(). Returns what sense_asks_answer_rest() does. */
BW_NOINLINE __u32 sense_asks_answer_any(struct sense_asks *a, __u32 end, __u32 ack)
{
	__u32 *length, requests, least, guessed;
	__s64 bytes, expected, left;

	if (!a)
		return 0;
	bytes = a->bytes;
	a->bytes = 0;
	if (a->behind) {
		a->behind = bw_after(a->asked, ack);
		return a->behind ? 0 : sense_asks_answer_behind(a, end, ack, bytes);
	}
	if (a->mid == a->head || bw_after(sense_ask(a, a->mid)->end, ack)) {
		/* the rest, to the byte, of what was taken to be answered before: the server had it in hand */
		if (a->in_hand < SENSE_IN_HAND && ack == a->acked && bytes && a->owed == bytes)
			a->in_hand++;
		sense_asks_settle(a, bytes);
		return 0;
	}
	length = sense_asks_length(a);
	requests = sense_asks_in(a, a->mid);
	expected = sense_asks_expected(a, bytes);
	left = sense_asks_left(a, bytes, expected);
	if (*length & SENSE_LENGTH_IS_FIRST)
		left = sense_asks_first(a, length, bytes, left);
	least = sense_asks_least(a, ack, bytes, *length);
	sense_asks_pop(a, end);
	/* a part of a response, which may be followed by another; or it is an older request's */
	guessed = (2 * bytes < expected && a->mid != a->head) || a->owed >= bytes;
	if (a->mid != a->head && !bw_after(sense_ask(a, a->mid)->end, ack))
		return guessed + sense_asks_answer_rest(a, end, ack, left, least);
	sense_asks_learn(a, length, (__u32)bytes / requests);
	sense_asks_settle(a, left);
	return guessed;
}

/* At a client: a response ends at `end`, of so many bytes as arrived; its last segment acknowledges `ack`. */
BW_INLINE void sense_asks_answer(struct sense_asks *a, __u32 end, __u32 ack, __u32 *guessed)
{
	a->answered += a->bytes;
	/* the common case: only one request is under way, and the response has the length that is known */
	if (a->head - a->mid == 1 && !(a->behind | a->owed | a->merged) && *sense_asks_length(a) == a->bytes &&
	    !bw_after(sense_ask(a, a->mid)->end, ack)) {
		sense_asks_pop(a, end);
		a->bytes = 0;
	} else {
		*guessed += sense_asks_answer_any(a, end, ack);
	}
	a->acked = ack;
}

/* Those before `mid` are over that end at or before `upto`. */
BW_NOINLINE int sense_asks_end_rest(struct sense_asks *a, struct sense_hist *h, __u32 upto, __u64 now)
{
	if (!a)
		return 0;
	for (int i = 0; i < SENSE_ASKS && a->tail != a->mid; i++) {
		if (bw_after(sense_ask(a, a->tail)->end, upto))
			break;
		sense_asks_end(a, h, now);
	}
	return 0;
}

/* At a client: it has read up to `upto`. */
BW_INLINE void sense_asks_read_answers(struct sense_asks *a, struct sense_hist *h, __u32 upto, __u64 now)
{
	if (a->tail == a->mid || bw_after(sense_ask(a, a->tail)->end, upto))
		return;
	sense_asks_end(a, h, now);
	if (a->tail != a->mid)
		sense_asks_end_rest(a, h, upto, now);
}

BW_NOINLINE int sense_asks_take_rest(struct sense_asks *a, __u32 upto)
{
	if (!a)
		return 0;
	for (int i = 0; i < SENSE_ASKS && a->mid != a->head; i++) {
		if (bw_after(sense_ask(a, a->mid)->end, upto))
			break;
		a->mid++;
	}
	return 0;
}

/* At a server: it has read up to `upto`. */
BW_INLINE void sense_asks_take(struct sense_asks *a, __u32 upto)
{
	if (a->mid == a->head || bw_after(sense_ask(a, a->mid)->end, upto))
		return;
	a->mid++;
	if (a->mid != a->head)
		sense_asks_take_rest(a, upto);
}

/* At a server: it answers all that it has read, which is up to `upto`. */
BW_INLINE void sense_asks_answered(struct sense_asks *a, struct sense_hist *h, __u32 upto, __u64 now)
{
	if (a->tail == a->mid)
		return;
	sense_asks_end(a, h, now);
	if (a->tail != a->mid)
		sense_asks_end_rest(a, h, upto, now);
}

/* How many are under way. */
BW_INLINE __u32 sense_asks_under_way(const struct sense_asks *a)
{
	return a->head - a->tail + a->merged;
}

/* When the oldest of them began; 0: there is none. */
BW_INLINE __u64 sense_asks_oldest(struct sense_asks *a, __u64 now)
{
	return a->tail == a->head ? 0 : now - sense_asks_age(a, a->tail, now);
}

/* Apart, so that the verifier walks it once. */
BW_NOINLINE int sense_asks_censor_next(struct sense_asks *a, struct sense_hist *h, __u32 n, __u64 since, __u64 now)
{
	__s64 took;

	if (!a || !h)
		return 0;
	took = sense_asks_age(a, n, now);
	if (took >= 0 && took <= (__s64)(now - since))
		sense_hist_add(h, took, sense_asks_in(a, n));
	return 0;
}

/* What is under way now, and began at `since` or later, has lasted so long, and nobody knows how much longer. */
BW_INLINE void sense_asks_censor(struct sense_asks *a, struct sense_hist *h, __u64 since, __u64 now)
{
	for (__u32 i = 0; i < SENSE_ASKS && a->tail + i != a->head; i++)
		sense_asks_censor_next(a, h, a->tail + i, since, now);
}

#endif
