/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/space.h as an ordinary function. */
#include "lib/space.h"

__u32 bw_twin_device_room(__u64 pacing_rate, __u32 mss, __u32 queued)
{
	return window_device_room(pacing_rate, mss, queued);
}

__u32 bw_twin_space(const struct window_sender *s, __u32 slack)
{
	return window_space(s, slack);
}

__u32 bw_twin_allowed(const struct window_sender *s)
{
	return window_allowed(s);
}
