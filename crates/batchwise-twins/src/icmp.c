/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What lib/icmp.h and lib/tos.h read, as ordinary functions. */
#include "lib/icmp.h"

/* From where an ICMP header begins, of which the programs know that it is all there. */
int bw_twin_quoted(const __u8 *data, __u32 len, int v6, struct bw_tuple *t)
{
	return v6 ? bw_quoted_ipv6(data, data + len, t) : bw_quoted_ipv4(data, data + len, t);
}

/* As the programs of burst/ read it; -1: there is none. */
int bw_twin_tos(const __u8 *data, __u32 len)
{
	__u32 link = bw_link(data, data + len);
	const __u8 *ip = data + link;

	return link && link + 12 <= len ? (int)bw_tos(ip, ip[0] >> 4 == 6) : -1;
}
