//! `batchwise watch --hints` as its users meet it: an application that gives hints, a real Redis,
//! and the lines that come out. Needs root. One binary, whose tests take turns.

#[path = "../stage/closeness.rs"]
mod closeness;
#[path = "../stage/request.rs"]
mod request;
#[path = "../stage/stage.rs"]
mod stage;
#[allow(
    dead_code,
    reason = "shared with the tests of watch, which use more of it"
)]
#[path = "../watch/watch.rs"]
mod watch;

mod lines;
mod usage;
