// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Never loaded: tells the generator of Rust types of the structs that the twins take. */
#include "lib/admit.h"
#include "lib/endpoint.h"
#include "lib/gaps.h"
#include "lib/packet.h"
#include "lib/space.h"

struct burst_rules *of_burst_rules;
struct burst_reserved *of_burst_reserved;
struct burst_lease *of_burst_lease;
struct burst_credit *of_burst_credit;
struct burst_packet *of_burst_packet;
struct sense_endpoint *of_endpoint;
enum sense_record_flag *of_record_flag;
struct sense_sock_view *of_sock_view;
struct flow_gaps *of_gaps;
struct flow_stream *of_stream;
struct flow_gaps_params *of_gaps_params;
struct flow_estimate *of_estimate;
struct bw_packet *of_packet;
struct window_sender *of_sender;
enum flow_gaps_flag *of_gaps_flag;
enum flow_estimate_flag *of_estimate_flag;
