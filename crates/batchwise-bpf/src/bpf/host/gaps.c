/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib/gaps.h as ordinary functions, compiled on the host so that tests can hold it against
 * batchwise-core. Not part of any BPF program.
 */
#include "../lib/gaps.h"

int bw_twin_gaps_due(const struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now)
{
	return bw_gaps_due(g, p, now);
}

void bw_twin_gaps_open(struct bw_gaps *g, __u64 now)
{
	bw_gaps_open(g, now);
}

int bw_twin_gaps_full_sized(struct bw_gaps *g, __u32 ip_len)
{
	return bw_gaps_full_sized(g, ip_len);
}

void bw_twin_gaps_packet(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now, int marked,
			 int resent)
{
	bw_gaps_packet(g, p, now, marked, resent);
}

void bw_twin_gaps_estimate(const struct bw_gaps *g, const struct bw_gaps_params *p,
			   struct bw_estimate *out)
{
	bw_gaps_estimate(g, p, out);
}
