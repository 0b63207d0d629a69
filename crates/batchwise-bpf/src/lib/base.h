/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What all of the C shares: how functions are inlined and verified, and the order of stores and of
 * sequence numbers.
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
#ifdef __bpf__
#define BW_NOINLINE __attribute__((noinline))
#else
#define BW_NOINLINE static inline
#endif

/*
 * Other CPUs see the store after all before it, and before all behind it. x86 keeps stores in order, and
 * loads; elsewhere an atomic does, but only one that returns the old value.
 */
BW_INLINE void bw_store(__u32 *at, __u32 value)
{
#ifdef __TARGET_ARCH_x86
	__asm__ volatile("" ::: "memory");
	*(volatile __u32 *)at = value;
	__asm__ volatile("" ::: "memory");
#else
	__sync_lock_test_and_set(at, value);
#endif
}

/* Likewise, a load. */
BW_INLINE __u32 bw_load(__u32 *at)
{
#ifdef __TARGET_ARCH_x86
	return *(volatile __u32 *)at;
#else
	return __sync_fetch_and_or(at, 0);
#endif
}

/* 1 or 0. The compiler is kept from making a branch of it. Both below 2^63. */
BW_INLINE __u64 bw_less(__u64 a, __u64 b)
{
	__u64 d = a - b;

	__asm__ volatile("" : "+r"(d));
	return d >> 63;
}

/* The uppermost bit that is set, 0 for 0: arithmetic, as the verifier follows every branch. */
BW_INLINE __u32 bw_msb(__u32 value)
{
	__u64 v = value, msb, more;

	msb = bw_less(0xffff, v) << 4;
	v >>= msb;
	more = bw_less(0xff, v) << 3;
	v >>= more;
	msb += more;
	more = bw_less(0xf, v) << 2;
	v >>= more;
	msb += more;
	more = bw_less(3, v) << 1;
	v >>= more;
	return msb + more + (v >> 1);
}

/* RFC 1982 comparison: a is after b. */
BW_INLINE int bw_after(__u32 a, __u32 b)
{
	return (__s32)(b - a) < 0;
}

#endif
