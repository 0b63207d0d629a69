// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Never loaded: tells the generator of Rust types of the structs that the twins take. */
#include "lib/admit.h"
#include "lib/endpoint.h"
#include "lib/gaps.h"
#include "lib/packet.h"
#include "lib/space.h"

struct bw_burst_rules *of_burst_rules;
struct bw_burst_reserved *of_burst_reserved;
struct bw_burst_lease *of_burst_lease;
struct bw_burst_credit *of_burst_credit;
struct bw_burst_packet *of_burst_packet;
struct bw_endpoint *of_endpoint;
struct bw_sock_view *of_sock_view;
struct bw_gaps *of_gaps;
struct bw_stream *of_stream;
struct bw_gaps_params *of_gaps_params;
struct bw_estimate *of_estimate;
struct bw_packet *of_packet;
struct bw_sender *of_sender;
enum bw_gaps_flag *of_gaps_flag;
enum bw_estimate_flag *of_estimate_flag;
