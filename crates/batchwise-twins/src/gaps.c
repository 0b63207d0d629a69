/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/gaps.h as ordinary functions, so that tests can hold it against batchwise-core. */
#include "lib/gaps.h"

int bw_twin_gaps_due(const struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now)
{
	return bw_gaps_due(g, p, now);
}

void bw_twin_gaps_open(struct bw_gaps *g, __u64 now)
{
	bw_gaps_open(g, now);
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

void bw_twin_gaps_tcp(struct bw_gaps *g, struct bw_stream *s, const struct bw_gaps_params *p,
		      __u64 now, __u32 seq, __u32 len, __u32 ack, __u32 ip_len)
{
	bw_gaps_tcp(g, s, p, now, seq, len, ack, ip_len);
}

void bw_twin_gaps_tcp_ack(const struct bw_gaps *g, struct bw_stream *s, __u64 now, __u32 ack)
{
	bw_gaps_tcp_ack(g, s, now, ack);
}

void bw_twin_gaps_datagram(struct bw_gaps *g, const struct bw_gaps_params *p, __u64 now,
			   __u32 ip_len)
{
	bw_gaps_datagram(g, p, now, ip_len);
}
