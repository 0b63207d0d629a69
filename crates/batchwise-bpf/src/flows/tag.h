/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Names of flows: hashes with a key that strangers do not know.
 */
#ifndef FLOW_TAG_H
#define FLOW_TAG_H

#include "../lib/packet.h"

/* Set before loading. */
const volatile __u64 hash_keys[2]; /* random; the second is odd */

BW_INLINE __u64 flow_mix(__u64 h, __u64 word)
{
	h = (h ^ word) * hash_keys[1];
	return h ^ h >> 32;
}

/* Brings what only the high bits differ in to the low ones: the end of an IPv4 address is such. */
BW_INLINE __u64 flow_finish(__u64 h)
{
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* Names a flow; neither half is 0. */
BW_INLINE __u64 flow_tag(const struct bw_tuple *t)
{
	const bw_word64 *w = (const bw_word64 *)t;
	__u64 h = hash_keys[0];

	if (w[0] | w[2]) { /* not IPv4 */
		h = flow_mix(h, w[0]);
		h = flow_mix(h, w[2]);
	}
	h = flow_mix(h, w[1]);
	h = flow_mix(h, w[3]);
	h = flow_mix(h, w[4]);
	h = flow_finish(h);
	if (!(__u32)h)
		h |= 1;
	return h >> 32 ? h : h | 1ULL << 32;
}

#endif
