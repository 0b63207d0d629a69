/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the network stack of the machine did, counted on each CPU.
 */
#ifndef TRAFFIC_INTF_H
#define TRAFFIC_INTF_H

#include <linux/types.h>

#define TRAFFIC_SIZES 17 /* buffers by size, 4 KiB each; the last: 64 KiB and more */
#define TRAFFIC_SIZE 4096

struct traffic_counts {
	__u64 received;		/* buffers that came from devices, after GRO */
	__u64 received_bytes;
	__u64 received_packets; /* that they were made of */
	__u64 received_sizes[TRAFFIC_SIZES];
	__u64 queued;		/* buffers that went to devices, before GSO */
	__u64 queued_bytes;
	__u64 queued_packets;	/* that they are made into */
	__u64 queued_sizes[TRAFFIC_SIZES];
	__u64 retransmissions;
	__u64 wakeups;
	__u64 sends;		/* calls, and their bytes */
	__u64 sent_bytes;
	__u64 reads;
	__u64 read_bytes;
};

#endif
