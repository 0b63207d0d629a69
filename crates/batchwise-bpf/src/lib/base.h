/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What all of the C shares: how functions are inlined and verified, and the order of sequence numbers.
 * This folder is helper-free: compiled into the BPF programs and, for the tests, on the host.
 */
#ifndef BW_BASE_H
#define BW_BASE_H

#include <linux/types.h>

#define BW_INLINE static inline __attribute__((always_inline))

/*
 * A function that the verifier checks once, for all arguments, instead of at every call with what it
 * knows there.
 */
#define BW_APART __attribute__((noinline))

/* RFC 1982 comparison: a is after b. */
BW_INLINE int bw_after(__u32 a, __u32 b)
{
	return (__s32)(b - a) < 0;
}

#endif
