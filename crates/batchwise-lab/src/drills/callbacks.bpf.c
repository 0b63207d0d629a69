// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Somebody else's sock_ops program: asks to see the header of every segment of the connections that
 * are made, and counts what it is shown.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 established;
__u64 parsed;

SEC("sockops")
int count(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG);
		__sync_fetch_and_add(&established, 1);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		__sync_fetch_and_add(&parsed, 1);
		break;
	}
	return 1;
}
