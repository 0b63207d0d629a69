//! A watcher that is killed under load leaves nothing behind: no program, no changed socket.

use batchwise_core::sense::report::{Estimator, Side};

use crate::tcp::watch::echo::Echo;
use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, programs_of, until_freed};

/// A port that no other test and no lab run uses: the watchers here see the whole machine.
const PORT: u16 = 17_007;

fn kill_under_load(name: &str, args: &[&str], [server, client]: [Estimator; 2]) {
    let stage = Stage::build(name);
    let quiet = Echo::start(&stage, PORT + 1);
    let before = quiet.options();
    let watch = Watch::start(&stage.hosts.server, PORT, None, args);
    // connected while it watches, so that an exchange is agreed
    let echo = Echo::start(&stage, PORT);
    let lines = watch.until_estimator(Side::Server, server);
    watch.until_estimator(Side::Client, client);
    assert!(lines.iter().all(|l| l.service.ends_with(&PORT.to_string())));
    echo.assert_goes_on();
    assert_eq!(echo.options(), before, "while watched, against unwatched");

    let programs = programs_of(watch.pid());
    assert!(!programs.is_empty());
    watch.sigkill();
    until_freed(&programs);
    echo.assert_goes_on();
    assert_eq!(echo.options(), before, "after the kill");
    for traffic in [echo, quiet] {
        traffic.finish();
    }
}

#[test]
fn a_killed_watcher_leaves_no_program_and_no_changed_socket() {
    kill_under_load("kill", &[], [Estimator::Turns, Estimator::Turns]);
}

#[test]
fn a_killed_watcher_that_exchanged_leaves_no_program_and_no_changed_socket() {
    kill_under_load("killx", &["--exchange"], [Estimator::TwoSided; 2]);
}
