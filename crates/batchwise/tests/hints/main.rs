//! `--hints` as its users meet it: an application that gives hints, a real Redis, and what comes out
//! at both ends. Needs root. One binary, whose tests take turns.

#[allow(
    dead_code,
    reason = "shared with the tests of watch, which use more of it"
)]
#[path = "../watch/capture.rs"]
mod capture;
#[path = "../stage/closeness.rs"]
mod closeness;
#[path = "../stage/request.rs"]
mod request;
#[allow(
    dead_code,
    reason = "shared with the tests of tune, which use more of it"
)]
#[path = "../tune/scene.rs"]
mod scene;
#[path = "../stage/stage.rs"]
mod stage;
#[allow(
    dead_code,
    reason = "shared with the tests of watch, which use more of it"
)]
#[path = "../watch/watch.rs"]
mod watch;

mod lines;
mod peers;
mod usage;
