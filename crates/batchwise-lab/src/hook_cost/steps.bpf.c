// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What a hook of the sensor does, a step at a time, on the tracepoints that it uses: nothing; finding
 * the socket's storage; that, and reading the clock.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sock;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} state SEC(".maps");

/* A socket's first run makes its storage. */
static __always_inline void look_up(struct sock *sk)
{
	bpf_sk_storage_get(&state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

static __always_inline void clock(struct sock *sk)
{
	__u64 *last = bpf_sk_storage_get(&state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (last)
		*last = bpf_ktime_get_ns();
}

#define HOOKS(step, does)                                                                          \
	SEC("tp_btf/tcp_probe") int BPF_PROG(step##_segment, struct sock *sk)                      \
	{                                                                                          \
		does;                                                                              \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/tcp_rcv_space_adjust") int BPF_PROG(step##_read, struct sock *sk)              \
	{                                                                                          \
		does;                                                                              \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/tcp_sendmsg_locked") int BPF_PROG(step##_send, struct sock *sk)                \
	{                                                                                          \
		does;                                                                              \
		return 0;                                                                          \
	}

HOOKS(empty, (void)sk)
HOOKS(look_up, look_up(sk))
HOOKS(clock, clock(sk))
