/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the decapsulator shares with its loader: the only definition of both. */
#ifndef DECAP_INTF_H
#define DECAP_INTF_H

#include <linux/types.h>

/* Key of the trie of allowed outer sources. */
struct decap_prefix {
	__u32 bits; /* of what follows that count: 32, and those of addr; IPv4: 96 more than its own */
	__u32 version; /* 4, 6: a prefix of IPv6 that covers IPv4-mapped addresses is not for IPv4 */
	__u8 addr[16]; /* IPv4 as IPv4-mapped IPv6 */
};

/* Packets by their one fate. All but the first go their way unchanged. */
struct decap_fates {
	__u64 decapsulated;
	__u64 no_tunnel;      /* not IP in IP */
	__u64 elsewhere;      /* a tunnel whose end is no address of this host */
	__u64 foreign_source; /* a tunnel that does not begin where it may */
	__u64 foreign_inner;  /* the packet inside is for no address of this host */
	__u64 fragment;	      /* the outer packet is not whole */
	__u64 options;	      /* of the outer packet; IPv6: a header between the two */
	__u64 malformed;      /* headers contradict themselves, each other or the frame */
};

#endif
