// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Somebody else's sock_ops program: asks to be called for the options of every segment that the
 * connections which are made send, and counts that.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 called;

SEC("sockops")
int count(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		__sync_fetch_and_add(&called, 1);
		break;
	}
	return 1;
}
