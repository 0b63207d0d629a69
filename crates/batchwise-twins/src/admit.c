/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/admit.h as ordinary functions. */
#include "lib/admit.h"

enum burst_verdict bw_twin_burst_decide(const struct burst_rules *rules,
					struct burst_reserved *reserved,
					struct burst_lease *lease,
					struct burst_credit *source, __u64 now, __u32 queued,
					const struct burst_packet *packet)
{
	return burst_decide(rules, reserved, lease, source, now, queued, packet);
}

__u32 bw_twin_burst_segments(__u8 tos, __u32 low)
{
	return burst_segments(tos, low);
}

__u8 bw_twin_burst_mark(__u8 tos, __u32 segments, __u32 low)
{
	return burst_set_mark(tos, segments, low);
}

__u8 bw_twin_burst_unmark(__u8 tos, __u32 low)
{
	return burst_clear_mark(tos, low);
}
