// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A peer that means harm: the connection from one port offers the exchange (docs/research/exchange.md) and then
 * sends an option of it in every segment, of random content.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SYN 0x02
#define HELLO 4
#define OPTION 16

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u32 port; /* ours */
__u32 armed;
__u64 sent;

SEC("sockops")
int harm(struct bpf_sock_ops *ctx)
{
	__u32 option[OPTION / 4], i, length = ctx->skb_tcp_flags & SYN ? HELLO : OPTION;

	if (ctx->local_port != port)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (length == HELLO || armed)
			bpf_reserve_hdr_opt(ctx, length, 0);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		for (i = 0; i < OPTION / 4; i++)
			option[i] = bpf_get_prandom_u32();
		/* kind 253, its length, and the experiment "BW" */
		option[0] = 0x574200fd | length << 8;
		if (!bpf_store_hdr_opt(ctx, option, length, 0) && length == OPTION)
			__sync_fetch_and_add(&sent, 1);
		break;
	}
	return 1;
}
