// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Never loaded: the Rust types that flows/ shares with its users are generated from this. */
#include "flows_intf.h"

struct flow_bucket *of_bucket;
struct flow_counters *of_counters;
struct flow_born *of_born;
struct flow_epoch *of_epoch;
struct flow_sweep *of_sweep;
enum flow_gaps_flag *of_gaps_flag;
enum flow_gaps_algorithm *of_gaps_algorithm;
enum flow_estimate_flag *of_estimate_flag;
enum flow_fate *of_fate;
