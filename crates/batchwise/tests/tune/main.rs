//! `batchwise tune` under fault drills: agents on both hosts of a real Redis, judged from outside by
//! what sockets are set to and by the replies that come back. Needs root. One binary, so that the
//! tests can take turns: each has the machine's few CPUs to itself.

#[path = "../stage/generator.rs"]
mod generator;
#[path = "../stage/programs.rs"]
mod programs;
#[path = "../stage/refusal.rs"]
mod refusal;
#[path = "../stage/scrape.rs"]
mod scrape;
#[path = "../stage/stage.rs"]
mod stage;

mod agent;
mod application;
mod scene;
mod sockets;

mod churn;
mod death;
mod dry_run;
mod endings;
mod metrics;
mod takeover;
mod trials;
mod usage;
mod wishes;
