/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/space.h as an ordinary function. */
#include "lib/space.h"

__u32 bw_twin_space(const struct bw_sender *s, __u32 slack)
{
	return bw_space(s, slack);
}
