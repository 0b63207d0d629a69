// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Never loaded: the Rust types that flows/ shares with its users are generated from this. */
#include "flows_intf.h"

struct bw_bucket *of_bucket;
struct bw_counters *of_counters;
struct bw_born *of_born;
struct bw_epoch *of_epoch;
struct bw_sweep *of_sweep;
enum bw_gaps_flag *of_gaps_flag;
enum bw_gaps_algorithm *of_gaps_algorithm;
enum bw_estimate_flag *of_estimate_flag;
enum bw_fate *of_fate;
