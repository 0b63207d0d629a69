/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the agent that tunes has decided, and what applications have hinted: maps that it writes and
 * the programs read.
 */
#ifndef SENSE_CONTROL_H
#define SENSE_CONTROL_H

#include "members.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SENSE_CONTROLS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sense_service);
	__type(value, struct sense_control);
} controls SEC(".maps");

/* Not 0: the agent is gone, and every socket goes back to its application's own setting. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} released SEC(".maps");

/* What applications asked for, by cookie, whose sockets an agent left behind. Empty but while they are given back. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
} orphaned_settings SEC(".maps");

/* Requests of a connection (by socket cookie) as its application knows them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct sense_queue);
} hints SEC(".maps");

const volatile bool hinting;

/* The agent's process: what it sets is no application's setting. */
volatile __u32 agent;

/* Until when the window goes on, ns, CLOCK_MONOTONIC, as far as the agent knows: peers are told. */
volatile __u64 open_until;

/* Wakes the agent while nothing is counted: a peer's window has begun, and ends then. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} doorbell SEC(".maps");

/* However many peers ring, and how often. */
#define SENSE_RING_PERIOD 100000000ULL /* ns */
__u64 rung_at;

/* The connection's hint, where there is one: the pointer stays good while the program runs. */
BW_INLINE struct sense_queue *sense_hint(const struct sense_endpoint *e)
{
	return hinting ? bpf_map_lookup_elem(&hints, &e->rec.cookie) : NULL;
}

BW_INLINE bool sense_is_released(void)
{
	__u32 zero = 0, *gone = bpf_map_lookup_elem(&released, &zero);

	return !gone || *gone;
}

/* What was decided for the socket's service; NULL: nothing, or it does not count any more. */
BW_INLINE struct sense_control *sense_decided(const struct sense_endpoint *e)
{
	struct sense_service s = sense_service(&e->rec);

	return sense_is_released() ? NULL : bpf_map_lookup_elem(&controls, &s);
}

/* Whether the socket is to have TCP_NODELAY. */
BW_INLINE bool sense_wants_nagle_off(const struct sense_endpoint *e, const struct sense_control *decided)
{
	if (!decided || decided->arm == SENSE_ARM_ACK_SOON)
		return e->rec.app_setting_off;
	return decided->arm == SENSE_ARM_NAGLE_OFF;
}

#endif
