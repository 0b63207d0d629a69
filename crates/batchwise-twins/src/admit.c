/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/admit.h as ordinary functions. */
#include "lib/admit.h"

enum bw_burst_verdict bw_twin_burst_decide(const struct bw_burst_rules *rules,
					   struct bw_burst_reserved *reserved,
					   struct bw_burst_lease *lease,
					   struct bw_burst_credit *source, __u64 now, __u32 queued,
					   const struct bw_burst_packet *packet)
{
	return bw_burst_decide(rules, reserved, lease, source, now, queued, packet);
}

__u32 bw_twin_burst_segments(__u8 tos, __u32 low)
{
	return bw_burst_segments(tos, low);
}

__u8 bw_twin_burst_mark(__u8 tos, __u32 segments, __u32 low)
{
	return bw_burst_mark(tos, segments, low);
}

__u8 bw_twin_burst_unmark(__u8 tos, __u32 low)
{
	return bw_burst_unmark(tos, low);
}
