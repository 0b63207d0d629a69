// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The sampler: at each tick of a CPU's clock, the stacks of what it does.
 */
#include "../lib/kernel.h"

#include <bpf/bpf_helpers.h>

#include "profile_intf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Samples; its size is set by the loader. Nobody is woken: the reader comes by itself. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} samples SEC(".maps");

/* Processes that are looked at, if `only_pids`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} pids SEC(".maps");

const volatile _Bool only_pids;
const volatile _Bool user_stacks;
/* Looked at is what runs in this cgroup and below it; 0: all. */
const volatile __u64 cgroup;
/* How deep in the hierarchy that is. */
const volatile int cgroup_level;

/* Samples that found no room. */
__u64 lost;

SEC("perf_event")
int profile_tick(void *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct profile_sample *sample;

	if (only_pids && !bpf_map_lookup_elem(&pids, &pid))
		return 0;
	if (cgroup && bpf_get_current_ancestor_cgroup_id(cgroup_level) != cgroup)
		return 0;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	sample->pid = pid;
	sample->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(sample->name, sizeof(sample->name));
	sample->kernel_bytes = bpf_get_stack(ctx, sample->kernel, sizeof(sample->kernel), 0);
	sample->user_bytes = 0;
	if (user_stacks)
		sample->user_bytes = bpf_get_stack(ctx, sample->user, sizeof(sample->user),
						   BPF_F_USER_STACK);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}

/* No map has it by type: it tells the loader's generator of it. */
struct profile_sample *of_sample;
