/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The parts of kernel structures that the programs read, and nothing else. CO-RE relocates every
 * access, so field order and omissions do not matter; a kernel that lacks a field fails to load.
 */
#ifndef BW_KERNEL_H
#define BW_KERNEL_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/types.h>

#define AF_INET 2
#define AF_INET6 10
#define TCP_ESTABLISHED 1
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define IPPROTO_TCP 6
#define SOL_TCP 6
#define SK_PACING_NONE 0
#define TCPHDR_FIN 0x01
#define TCPHDR_SYN 0x02
#define TCPHDR_RST 0x04
#define TCPHDR_PSH 0x08
#define TCP_NAGLE_OFF 1
#define TCP_NAGLE_CORK 2
#define TCP_NODELAY 1
#define TCP_NOTSENT_LOWAT 25
#define MSG_MORE 0x8000
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008 /* Linux 6.14; newer than some <linux/bpf.h> */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct netns_ipv4 {
	unsigned int sysctl_tcp_notsent_lowat;
};

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct cgroup___before_6_1 {
	__u64 ancestor_ids[1]; /* as many as there are levels */
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	__u16 sk_protocol;
	int sk_sndbuf;
	int sk_wmem_queued;
	refcount_t sk_wmem_alloc;
	unsigned long sk_pacing_rate;
	__u32 sk_pacing_status;
	struct socket *sk_socket;
	void *sk_user_data;
};

struct ipv6_pinfo {
	int mcast_oif;
};

struct inet_sock {
	struct sock sk;
	struct ipv6_pinfo *pinet6;
	int mc_index;
};

struct tcp_ulp_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_ulp_ops *icsk_ulp_ops;
	__u32 icsk_delack_max;
};

struct bpf_prog;

struct sk_psock_progs {
	struct bpf_prog *msg_parser;
	struct bpf_prog *stream_verdict;
	struct bpf_prog *skb_verdict;
};

struct sk_psock {
	struct sk_psock_progs progs;
};

struct proto___before_6_5 {
	void *sendpage;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u16 snd_wscale : 4;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_cwnd;
	__u32 snd_wnd;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	struct tcp_options_received rx_opt;
	__u32 write_seq;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 rcv_wup;
	__u32 mss_cache;
	__u32 srtt_us;
	__u32 notsent_lowat;
	__u32 data_segs_in;
	__u32 data_segs_out;
	__u32 segs_out;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 tcp_wstamp_ns;
	struct minmax rtt_min;
	__u32 total_retrans;
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u8 chrono_type : 2; /* by BPF_CORE_READ_BITFIELD_PROBED alone */
	__u8 : 0; /* nonagle begins a byte, as in the kernel: it is read where it lies here */
	__u8 nonagle : 4;
	__u8 syn_smc : 1;
	bool is_mptcp;
	__u8 bpf_sock_ops_cb_flags;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
};

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct nlattr;
struct netlink_ext_ack;
struct sk_buff;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct qdisc_skb_cb {
	unsigned int pkt_len;
};

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

struct netdev_queue {
	struct Qdisc *qdisc;
};

struct net_device {
	struct netdev_queue *_tx;
};

struct sk_buff {
	struct net_device *dev;
	unsigned char *head;
	unsigned char *data;
	unsigned int end;
	unsigned int len;
	char cb[48];
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u32 ack_seq;
	__u16 tcp_flags;
};

struct iov_iter {
	unsigned long count;
};

struct msghdr {
	struct iov_iter msg_iter;
	unsigned int msg_flags;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct file;

struct socket {
	struct sock *sk;
	struct file *file;
};

struct task_struct {
	int tgid;
};

struct bpf_map {
	__u32 id;
};

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

#endif
