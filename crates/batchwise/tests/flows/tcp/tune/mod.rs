//! `batchwise tune` under fault drills: agents on both hosts of a real Redis, judged from outside by
//! what sockets are set to and by the replies that come back. Needs root. Tests
//! take turns: each has the machine's few CPUs to itself.

mod application;
mod sockets;

mod app_settings;
mod death;
mod delack;
mod dry_run;
mod endings;
mod held;
mod long_options;
mod metrics;
mod record;
mod takeover;
mod trials;
mod whose;

mod long {
    mod churn;
    mod crowd;
    mod slow;
}

/// Tests come as soon as the last one's answer allows: what they cost does not matter.
const ALWAYS: [&str; 2] = ["--budget", "1"];
