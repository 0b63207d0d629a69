/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs that sense and tune share with their loader, beside what lib/endpoint.h keeps of a
 * socket: the only definition of each struct. Rust types are generated from it at build time. Layouts have
 * no implicit padding.
 */
#ifndef SENSE_INTF_H
#define SENSE_INTF_H

#include "../lib/endpoint.h"

/* Ports that are watched. */
struct sense_ports {
	__u16 first;
	__u16 last;
};

/* A service as agents name it: its server's address and port in a network namespace, seen from one side. */
struct sense_service {
	__u8 addr[16]; /* IPv4 as IPv4-mapped IPv6 */
	__u16 port;
	__u16 server; /* 1: its sockets here are the server's */
	__u32 netns; /* the inode of that of its sockets here */
};

/* What a service's sockets are to have. With the last one Nagle's algorithm is as their applications ask. */
enum sense_arm { SENSE_ARM_NAGLE_ON, SENSE_ARM_NAGLE_OFF, SENSE_ARM_ACK_SOON };

enum sense_controls_size {
	SENSE_CONTROLS = 1024, /* so many services, from either side, can be switched */
};

/* What the agent decided for a service. */
struct sense_control {
	enum sense_arm arm;
};

/* Nobody's window is longer; who counts all the time says so again and again. */
#define SENSE_OPEN_MOST 4000000000ULL /* ns */

/*
 * How often the programs ran on a CPU, on a line of its own: what counting costs is this, at the prices
 * that the agent has measured. Caches are colder than when it did, so some runs are timed.
 */
struct sense_runs {
	__u64 member;  /* at a segment, a read or a send of a watched socket */
	__u64 foreign; /* of another one */
	__u64 started; /* connections that became members */
	__u64 timed; /* of `member`, those whose time was taken, */
	__u64 took; /* ns: and how long they ran */
	__u64 untimed; /* so many runs from now on are not timed */
	__u64 reserved[2];
};

#define SENSE_TIMED_EVERY 61 /* prime: else the same hooks of each request would be timed */
#define SENSE_TIMED_MOST 20000 /* ns: what takes longer was interrupted */

#define SENSE_MOST_CPUS 1024 /* a power of two; above, CPUs share lines */

/* What the agent is handed of a connection that has had no event since it was told of it. */
struct sense_quiet {
	__u64 cookie;
	__u64 born;
	struct sense_sock_info info;
	__u32 app_setting_off;
	__u32 acks;
};

/* A descriptor of a watched socket, or of a listener, and whose it is. */
struct sense_owner {
	__u64 cookie;
	__u32 tgid;
	__u32 fd;
	struct sense_service listens; /* port 0: it is no listener */
};

/* What sense_dump writes before each. */
enum sense_entry {
	SENSE_ENTRY_RECORD, /* a sense_record, and its version as it was read */
	SENSE_ENTRY_HELD, /* likewise: no event in this epoch, so what was queued has been all along */
	SENSE_ENTRY_QUIET, /* a sense_quiet */
};

/* What is told of a connection without an event since it was told last. */
enum sense_brief {
	SENSE_BRIEF_NOT, /* its record */
	SENSE_BRIEF_QUIET, /* a sense_quiet */
	SENSE_BRIEF_NEWS, /* that, if there is news of it (struct sense_news), else nothing */
};

#define SENSE_PAGE (1 << 20)
#define SENSE_ENTRY_MOST (sizeof(__u64) + sizeof(struct sense_record) + sizeof(__u64))

/*
 * Entries that sense_dump hands over, until the reader takes them. An iterator's own buffer has room for 24 records. To
 * go on after it, the kernel walks past every socket of the bucket up to where it stopped
 * (bpf_sk_storage_map_seq_find_next()), and there are as many buckets as CPUs: with two, 50,000 sockets took 3 s.
 */
struct sense_page {
	__u64 used;
	__u8 bytes[SENSE_PAGE];
};

enum sense_tails_size {
	SENSE_TAILS = 64, /* so many services, from either side, have histograms at once: a bit each of 64 */
};

#endif
