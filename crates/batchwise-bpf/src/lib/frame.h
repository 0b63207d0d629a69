/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The length of an XDP frame, with the parts beyond the first that jumbo frames have.
 */
#ifndef BW_FRAME_H
#define BW_FRAME_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "base.h"

/* Whether frames may have more than one part (Linux 5.18); the loader sets the program's flag, too. */
const volatile bool frags;

/* Bytes. */
BW_INLINE __u64 bw_frame_length(struct xdp_md *ctx)
{
	if (frags)
		return bpf_xdp_get_buff_len(ctx);
	return ctx->data_end - ctx->data;
}

#endif
