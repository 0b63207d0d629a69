/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/packet.h as an ordinary function, so that tests can feed it what no network would. */
#include "lib/packet.h"

int bw_twin_packet(const __u8 *data, __u32 len, struct bw_packet *pkt)
{
	return bw_parse_packet(data, data + len, pkt);
}
