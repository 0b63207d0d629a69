/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Writing marks, for all programs of this folder.
 */
#ifndef BURST_H
#define BURST_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../lib/admit.h"
#include "../lib/tos.h"

#define TCX_NEXT -1
#define BURST_HEAD 12 /* of an IP header: as much as a mark changes */

/* A header is copied, changed and stored: direct writes would have every packet's buffer be made writable. */
BW_INLINE int burst_store_tos(struct __sk_buff *skb, const __u8 *ip, __u32 at, int v6, __u32 tos)
{
	__u8 head[BURST_HEAD] __attribute__((aligned(4)));

	__builtin_memcpy(head, ip, BURST_HEAD);
	bw_set_tos(head, v6, tos);
	return bpf_skb_store_bytes(skb, at, head, BURST_HEAD, 0);
}

#endif
