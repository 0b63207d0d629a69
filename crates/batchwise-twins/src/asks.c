/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/asks.h as ordinary functions. */
#include "lib/asks.h"

__u32 bw_twin_hist_bucket(__u64 ns)
{
	return sense_hist_bucket(ns);
}

void bw_twin_asks_reset(struct sense_asks *a, __u32 snd_una, __u32 write_seq)
{
	sense_asks_reset(a, snd_una, write_seq);
}

void bw_twin_asks_begin(struct sense_asks *a, __u32 end, __u64 now, __u32 *unmatched)
{
	sense_asks_begin(a, end, now, unmatched);
}

void bw_twin_asks_answer(struct sense_asks *a, __u32 end, __u32 bytes, __u32 ack, __u32 *guessed)
{
	a->bytes += bytes;
	sense_asks_answer(a, end, ack, guessed);
}

void bw_twin_asks_read_answers(struct sense_asks *a, struct sense_hist *h, __u32 upto, __u64 now)
{
	sense_asks_read_answers(a, h, upto, now);
}

void bw_twin_asks_take(struct sense_asks *a, __u32 upto)
{
	sense_asks_take(a, upto);
}

void bw_twin_asks_answered(struct sense_asks *a, struct sense_hist *h, __u32 upto, __u64 now)
{
	sense_asks_answered(a, h, upto, now);
}

void bw_twin_asks_censor(struct sense_asks *a, struct sense_hist *h, __u64 since, __u64 now)
{
	sense_asks_censor(a, h, since, now);
}
