/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What marking and admission share with their loaders: the only definition of each struct. */
#ifndef BURST_INTF_H
#define BURST_INTF_H

#include "../lib/admit.h"

/* Packets of a sender by their one fate; a GSO buffer is one packet. All but the first go as they are. */
struct burst_mark_fates {
	__u64 marked[16];     /* by class of what was left of the burst */
	__u64 bursts;	      /* of these: the first of their burst */
	__u64 too_short;      /* what TCP sends at once is no burst */
	__u64 dscp_used;      /* its DSCP is not 0 */
	__u64 taken;	      /* its DSCP is one of those that marks have */
	__u64 no_data;	      /* no payload, or SYN */
	__u64 other_port;     /* not asked for */
	__u64 no_socket;      /* of no TCP socket of this host */
	__u64 unreadable;     /* its headers */
	__u64 cleared;	      /* at the border: had a mark, and has none any more */
};

/* ---- Admission ---- */

#define BURST_SOURCES 8192 /* that are known at a time, and bursts at a time */
#define BURST_PLACES 8	/* in which one may be */

/* A source that has sent marks: 40 bytes, and 24 of a burst. */
struct burst_source {
	__u8 addr[16];	/* IPv4 as IPv4-mapped IPv6 */
	struct burst_credit credit;
	__u32 admitted; /* bursts */
	__u32 refused;	/* bursts */
	__u32 ignored;	/* packets whose marks were not heard */
	__u32 dropped;	/* packets that had marks */
};

/* Bursts of the flows that a hash may name. A packet of a burst that is known reads the names and its lease. */
struct burst_flow_set {
	__u64 tags[BURST_PLACES];
	struct burst_lease leases[BURST_PLACES];
};

/* What became of packets with marks, since the start. */
struct burst_admit_counts {
	__u64 packets[8]; /* by enum burst_verdict; BURST_TAKEN and _FULL: treated as if without a mark, or
			   * more than was told of */
	__u64 lost;	  /* leases that ended before all of their burst had come */
	__u64 lost_bytes; /* reserved, and not come in time */
};

/* The same of what is counted without a lock. */
struct burst_admit_aside {
	__u64 taken;	  /* let in: without a mark */
	__u64 full;	  /* dropped: without a mark, there was no room but what is reserved */
	__u64 busy;	  /* marked, and another CPU held the queue for long: let in as if without a mark */
	__u64 busy_full;  /* the same, dropped */
	__u64 own;	  /* packets of this host: it would hear of a drop as of a full queue of its own */
	__u64 unreadable; /* their headers */
	__u64 cleared;	  /* marks that were taken off, the host's own included */
	__u64 starved;	  /* packets that a queue of our own had no memory for */
};

#endif
