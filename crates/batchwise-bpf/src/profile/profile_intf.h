/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the sampler hands over.
 */
#ifndef PROFILE_INTF_H
#define PROFILE_INTF_H

#include <linux/types.h>

#define PROFILE_KERNEL 96 /* functions of a stack at most: the outermost are cut off */
#define PROFILE_USER 48
#define PROFILE_NAME 16

/* What a CPU was doing. */
struct profile_sample {
	__u32 pid;	    /* 0: nothing, but interrupts */
	__u32 cpu;
	__s32 kernel_bytes; /* of `kernel`; negative: there was none */
	__s32 user_bytes;
	char name[PROFILE_NAME]; /* of the thread */
	__u64 kernel[PROFILE_KERNEL]; /* the innermost first */
	__u64 user[PROFILE_USER];
};

#endif
