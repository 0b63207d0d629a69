/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The only definition of every struct that the load balancer's programs and their loader share.
 * Addresses are 16 bytes, IPv4 as IPv4-mapped IPv6; ports are in host order. Layouts have no
 * implicit padding.
 */
#ifndef BALANCE_INTF_H
#define BALANCE_INTF_H

#include <linux/types.h>

enum balance_bound {
	BALANCE_RING_SLOTS = 65537, /* prime; as core's balance::maglev::SLOTS */
	BALANCE_SERVICES = 512,     /* numbers that services can have */
	BALANCE_SERVICE_KEYS = 4096,
	BALANCE_BACKENDS = 4096, /* a power of two; index 0 is nobody */
	BALANCE_INTERFACES = 64, /* that packets can arrive at */
};

/* Where a service is reached. Port 0: at all that have no entry of their own. */
struct balance_vip_key {
	__u8 addr[16];
	__u16 port;
	__u8 proto; /* 0, with port 0: marks an address that has a service, for whatever else comes */
	__u8 reserved;
};

/* balance_vip.flags */
enum balance_vip_flag {
	BALANCE_VIP_BY_CLIENT = 0x1,	  /* all connections of a client's address go to one backend */
	BALANCE_VIP_TWO_CHOICES = 0x2, /* of two slots the backend with fewer busy flows for its weight */
};

struct balance_vip {
	__u16 number; /* its ring's index */
	__u16 flags;
};

/* As the next, a byte. */
enum balance_method { BALANCE_METHOD_NONE, BALANCE_METHOD_L2, BALANCE_METHOD_IPIP } __attribute__((packed));

enum balance_backend_state {
	BALANCE_BACKEND_VACANT,   /* nobody's: flows that were sent here are forgotten */
	BALANCE_BACKEND_SERVING,
	BALANCE_BACKEND_DRAINING, /* keeps its flows */
	BALANCE_BACKEND_DOWN,     /* keeps its TCP connections */
} __attribute__((packed));

/* balance_backend.flags */
enum balance_backend_flag {
	BALANCE_BACKEND_DRAINED = 0x1, /* by the operator; read by the agent alone */
	BALANCE_BACKEND_DOUBTED = 0x2, /* its latency is not believed: nobody's second choice */
};

struct balance_backend {
	__u8 addr[16];
	__u8 source[16];  /* of the outer header, of addr's family (BALANCE_METHOD_IPIP) */
	__u8 mac[6];	  /* of the next hop */
	__u8 own_mac[6];  /* of the interface towards it */
	__u32 ifindex;
	__u16 mtu;	  /* of the way out, bytes of IP */
	__u16 service;	  /* number */
	enum balance_method method;
	enum balance_backend_state state;
	__u8 generation;  /* tells whose flow an entry of the index is */
	__u8 flags;
	__u32 weight;	  /* effective: of two choices the less busy for its weight gets a new flow */
	__u32 spread;	  /* bits of source's last 4 bytes that tell flows apart, IPv4 only */
	__u64 identity;	  /* the agent's memory, as .base_weight */
	__u32 base_weight; /* what .weight was made from */
	__u32 reserved;
};

enum balance_seen_unit {
	BALANCE_SEEN_SHIFT = 26, /* balance_affinity.seen counts 2^26 ns (67 ms), CLOCK_MONOTONIC_COARSE */
};

/* balance_affinity.flags */
#define BALANCE_FLOW_CLOSING 0x1 /* FIN or RST was seen, and no payload since */
#define BALANCE_FLOW_NEW 0x2	    /* nothing but its first packet was seen yet */
/* its last packet had payload: it waits. Kept with BALANCE_VIP_TWO_CHOICES or measuring */
#define BALANCE_FLOW_WAITS 0x4

/* Where a flow goes. */
struct balance_affinity {
	__u16 backend;
	__u8 generation;
	__u8 flags;
	__u32 seen; /* when its last packet came */
} __attribute__((aligned(8)));

/* What became of a packet: it has exactly one outcome. */
enum balance_outcome {
	BALANCE_OUT_FORWARDED,	/* to a backend */
	BALANCE_OUT_PASSED,		/* to the host's own stack: not to a service's address, or not to us */
	BALANCE_OUT_NO_BACKEND,	/* dropped: nobody serves, as the next until TOO_BIG */
	BALANCE_OUT_NO_SERVICE,	/* to a service's address, at another port or protocol */
	BALANCE_OUT_FRAGMENT,	/* has no ports, or not all of its payload */
	BALANCE_OUT_OPTIONS,		/* IPv4 options */
	BALANCE_OUT_EXTENSIONS,	/* IPv6 extension headers */
	BALANCE_OUT_MALFORMED,	/* headers contradict themselves or the frame */
	BALANCE_OUT_EXPIRED,		/* of hops that it may take, none is left */
	BALANCE_OUT_TOO_BIG,		/* for the way to the backend: the client is told */
	BALANCE_OUT_ICMP_FORWARDED,	/* an error, to the backend of the connection that it is about */
	BALANCE_OUT_ICMP_ANSWERED,	/* an echo request */
	BALANCE_OUT_ICMP_UNKNOWN,	/* dropped: about no service's connection, or of another kind */
	BALANCE_OUT_UNSENT,		/* dropped: no room for headers */
	BALANCE_OUTS
};

struct balance_tallies {
	__u64 outcome[BALANCE_OUTS];
	__u64 unknown_flow;  /* packets amid a connection of which nothing is known: by the ring */
	__u64 insert_failed; /* flows that could not be kept */
};

struct balance_backend_tally {
	__u64 packets;
	__u64 bytes; /* of IP, before encapsulation */
	__u64 opened; /* flows, at their second packet */
	__u64 closed; /* flows of which the first FIN or RST was seen */
};

/* A census. */
struct balance_census {
	__u32 settled; /* flows that are left */
	__u32 young;
	__u32 removed;
	__u32 crowded; /* in: flows_settled needs room */
};

#endif
