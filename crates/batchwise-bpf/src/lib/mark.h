/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How a burst is told of: the twin of batchwise-core's `burst::mark`. Helper-free.
 */
#ifndef BW_MARK_H
#define BW_MARK_H

#include "base.h"

#define BW_MARK_CLASSES 16
#define BW_MARK_LONGEST 64
#define BW_MARK_POOL 0x3 /* of a DSCP: xxxx11 (RFC 2474 6) */
#define BW_ECN 0x3

BW_INLINE __u32 bw_mark_length(__u32 class)
{
	const __u8 lengths[BW_MARK_CLASSES] = { 2,  3,	4,  5,	6,  8,	10, 12,
						16, 20, 24, 32, 40, 48, 56, 64 };
	__u32 i, length = 0;

#pragma unroll
	for (i = 0; i < BW_MARK_CLASSES; i++)
		length = i == class ? lengths[i] : length;
	return length;
}

/* The class of a burst of so many segments, at least 2. */
BW_INLINE __u32 bw_mark_class(__u32 segments)
{
	__u32 i, class = 0;

#pragma unroll
	for (i = 0; i < BW_MARK_CLASSES - 1; i++)
		class += bw_less(bw_mark_length(i), segments);
	return class;
}

BW_INLINE int bw_is_marked(__u32 tos)
{
	return (tos >> 2 & BW_MARK_POOL) == BW_MARK_POOL;
}

/* The TOS of a packet that nobody has given a DSCP, in such a burst. */
BW_INLINE __u32 bw_marked(__u32 tos, __u32 segments)
{
	return (bw_mark_class(segments) << 2 | BW_MARK_POOL) << 2 | tos;
}

/* Segments that are left of the burst, this one included; 0: it is not marked. */
BW_INLINE __u32 bw_mark_segments(__u32 tos)
{
	return bw_is_marked(tos) ? bw_mark_length(tos >> 4) : 0;
}

/* What it was before it was marked. */
BW_INLINE __u32 bw_unmarked(__u32 tos)
{
	return bw_is_marked(tos) ? tos & BW_ECN : tos;
}

#endif
