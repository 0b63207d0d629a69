/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs, the agent and the applications' library share: the only definition of each struct. Rust
 * types are generated from it, those of the library by a test in batchwise-window.
 */
#ifndef WINDOW_INTF_H
#define WINDOW_INTF_H

#include <linux/types.h>

enum window_bound {
	WINDOW_APPS = 1024, /* applications at a time */
	WINDOW_GATES = 16,  /* ports of applications that do not ask */
	WINDOW_LEVEL = 0x6277, /* of the agent's setsockopt() on a socket that it registers */
};

/*
 * A registered socket in its application's memory. The application writes the first three, `fallbacks` and
 * `turn`, and takes `rung_at`; the programs write the rest. Slot 0 is no socket's.
 */
struct window_slot {
	__u32 armed;	/* 1: the application sleeps, or is about to */
	__u32 at_least;	/* bytes that congestion window and peer must allow before it is woken */
	__u32 lag_ns;	/* from the last wake-up to the moment that the application heard of it */
	__u32 space;	/* bytes that may be written, as of the last acknowledgment, … */
	__u32 allowed;	/* … and those that congestion window and peer allowed, whatever the device takes */
	__u32 unsent;	/* bytes that waited in the kernel then */
	__u32 rtt_us;	/* smoothed */
	__u32 events;	/* how often the programs looked */
	__u32 rung;	/* how often they woke the application */
	__u32 fallbacks; /* how often it looked again as nothing had rung */
	__u32 turn;	/* of the socket that has the slot now; 0: none */
	__u64 rung_at;	/* of a wake-up that the application has not heard of yet, ns, CLOCK_MONOTONIC */
};

/*
 * Whose a socket is, and which of the slots. Numbers and slots are used again: only together with
 * `generation` and `turn` they are this one's.
 */
struct window_registration {
	__u32 app;
	__u32 generation;
	__u32 slot;
	__u32 turn;
	__u32 flags;	/* callbacks that nobody else had asked for before: the programs write it */
};

#endif
