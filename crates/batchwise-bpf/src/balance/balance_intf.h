/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The only definition of every struct that the load balancer's programs and their loader share.
 * Addresses are 16 bytes, IPv4 as IPv4-mapped IPv6; ports are in host order. Layouts have no
 * implicit padding.
 */
#ifndef BW_BALANCE_INTF_H
#define BW_BALANCE_INTF_H

#include <linux/types.h>

enum bw_bound {
	BW_RING_SLOTS = 65537, /* prime; as core's balance::maglev::SLOTS */
	BW_SERVICES = 512,     /* numbers that services can have */
	BW_SERVICE_KEYS = 4096,
	BW_BACKENDS = 4096, /* a power of two; index 0 is nobody */
	BW_INTERFACES = 64, /* that packets can arrive at */
};

/* Where a service is reached. Port 0: at all that have no entry of their own. */
struct bw_vip_key {
	__u8 addr[16];
	__u16 port;
	__u8 proto; /* 0, with port 0: marks an address that has a service, for whatever else comes */
	__u8 reserved;
};

/* bw_vip.flags */
enum bw_vip_flag {
	BW_VIP_BY_CLIENT = 0x1,	  /* all connections of a client's address go to one backend */
	BW_VIP_TWO_CHOICES = 0x2, /* of two slots the backend with fewer busy flows for its weight */
};

struct bw_vip {
	__u16 number; /* its ring's index */
	__u16 flags;
};

/* As the next, a byte. */
enum bw_method { BW_METHOD_NONE, BW_METHOD_L2, BW_METHOD_IPIP } __attribute__((packed));

enum bw_backend_state {
	BW_BACKEND_VACANT,   /* nobody's: flows that were sent here are forgotten */
	BW_BACKEND_SERVING,
	BW_BACKEND_DRAINING, /* keeps its flows */
	BW_BACKEND_DOWN,     /* keeps its TCP connections */
} __attribute__((packed));

/* bw_backend.flags */
enum bw_backend_flag {
	BW_BACKEND_DRAINED = 0x1, /* by the operator; read by the agent alone */
	BW_BACKEND_DOUBTED = 0x2, /* its latency is not believed: nobody's second choice */
};

struct bw_backend {
	__u8 addr[16];
	__u8 source[16];  /* of the outer header, of addr's family (BW_METHOD_IPIP) */
	__u8 mac[6];	  /* of the next hop */
	__u8 own_mac[6];  /* of the interface towards it */
	__u32 ifindex;
	__u16 mtu;	  /* of the way out, bytes of IP */
	__u16 service;	  /* number */
	enum bw_method method;
	enum bw_backend_state state;
	__u8 generation;  /* tells whose flow an entry of the index is */
	__u8 flags;
	__u32 weight;	  /* effective: of two choices the less busy for its weight gets a new flow */
	__u32 spread;	  /* bits of source's last 4 bytes that tell flows apart, IPv4 only */
	__u64 identity;	  /* the agent's memory, as .base_weight */
	__u32 base_weight; /* what .weight was made from */
	__u32 reserved;
};

enum bw_seen_unit {
	BW_SEEN_SHIFT = 26, /* bw_affinity.seen counts 2^26 ns (67 ms), CLOCK_MONOTONIC_COARSE */
};

/* bw_affinity.flags */
#define BW_FLOW_CLOSING 0x1 /* FIN or RST was seen, and no payload since */
#define BW_FLOW_NEW 0x2	    /* nothing but its first packet was seen yet */
#define BW_FLOW_ASKS 0x4    /* its last packet had payload: it waits. Kept with BW_VIP_TWO_CHOICES or measuring */

/* Where a flow goes. */
struct bw_affinity {
	__u16 backend;
	__u8 generation;
	__u8 flags;
	__u32 seen; /* when its last packet came */
} __attribute__((aligned(8)));

/* What became of a packet: it has exactly one outcome. */
enum bw_outcome {
	BW_OUT_FORWARDED,	/* to a backend */
	BW_OUT_PASSED,		/* to the host's own stack: not to a service's address, or not to us */
	BW_OUT_NO_BACKEND,	/* dropped: nobody serves, as the next until TOO_BIG */
	BW_OUT_NO_SERVICE,	/* to a service's address, at another port or protocol */
	BW_OUT_FRAGMENT,	/* has no ports, or not all of its payload */
	BW_OUT_OPTIONS,		/* IPv4 options */
	BW_OUT_EXTENSIONS,	/* IPv6 extension headers */
	BW_OUT_MALFORMED,	/* headers contradict themselves or the frame */
	BW_OUT_EXPIRED,		/* of hops that it may take, none is left */
	BW_OUT_TOO_BIG,		/* for the way to the backend: the client is told */
	BW_OUT_ICMP_FORWARDED,	/* an error, to the backend of the connection that it is about */
	BW_OUT_ICMP_ANSWERED,	/* an echo request */
	BW_OUT_ICMP_UNKNOWN,	/* dropped: about no service's connection, or of another kind */
	BW_OUT_UNSENT,		/* dropped: no room for headers */
	BW_OUTS
};

struct bw_tallies {
	__u64 outcome[BW_OUTS];
	__u64 unknown_flow;  /* packets amid a connection of which nothing is known: by the ring */
	__u64 insert_failed; /* flows that could not be kept */
};

struct bw_backend_tally {
	__u64 packets;
	__u64 bytes; /* of IP, before encapsulation */
	__u64 opened; /* flows, at their second packet */
	__u64 closed; /* flows of which the first FIN or RST was seen */
};

/* A census. */
struct bw_census {
	__u32 settled; /* flows that are left */
	__u32 young;
	__u32 removed;
	__u32 crowded; /* in: flows_settled needs room */
};

#endif
