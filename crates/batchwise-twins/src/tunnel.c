/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* decap/tunnel.h as an ordinary function. */
#include "decap/tunnel.h"

/* Whether an IP packet, of which all is there, is a tunnel's: its source, its destination, and the destination inside. */
int bw_twin_tunnel(const __u8 *p, __u32 len, int v6, __u8 ends[48])
{
	const __u8 *end = p + len;
	struct decap_outer o = {};
	__u8 inner[16] __attribute__((aligned(8))) = {};
	int seen = v6 ? decap_read_outer6(p, end, &o) : decap_read_outer4(p, end, &o);

	if (seen != DECAP_TUNNEL || o.head + o.rest > len || !decap_read_inner(p + o.head, end, &o, inner))
		return 0;
	__builtin_memcpy(ends, o.src.addr, 16);
	__builtin_memcpy(ends + 16, o.dst, 16);
	__builtin_memcpy(ends + 32, inner, 16);
	return 1;
}
