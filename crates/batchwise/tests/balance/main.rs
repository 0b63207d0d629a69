//! `batchwise balance` as its operators meet it: clients, a balancer and servers in namespaces of
//! their own. Needs root. One binary, so that the tests can take turns.

#[allow(
    dead_code,
    reason = "shared with the tests of watch, which use more of it"
)]
#[path = "../stage/refusal.rs"]
mod refusal;
#[allow(
    dead_code,
    reason = "shared with the tests of watch, which use more of it"
)]
#[path = "../stage/stage.rs"]
mod stage;

mod balancer;
mod site;

mod checks;
mod health;
mod interfaces;
mod neighbours;
mod operation;
mod protocols;
mod takeover;
mod usage;
