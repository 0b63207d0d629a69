// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Counts the system calls of one process.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u32 process;
__u64 calls;

SEC("raw_tp/sys_enter")
int count(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == process)
		__sync_fetch_and_add(&calls, 1);
	return 0;
}
