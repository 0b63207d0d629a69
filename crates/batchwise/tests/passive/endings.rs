//! However it ends, no program stays on the interface, and traffic goes on.

use std::time::Duration;

use batchwise_testbed::stage::{Stage, eventually};
use nix::sys::signal::Signal;

use crate::run::{Live, is_attached};
use crate::service::{ask, start};

const PORT: u16 = 8_080;

fn end_by(name: &str, signal: Signal) {
    let stage = Stage::build(name);
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let address = stage.hosts.server_address(PORT);
    start(server, address);
    assert!(!is_attached(server));
    let live = Live::start(server, &["--port", "8080"]);
    ask(client, address, Duration::from_secs(1));
    live.until("a line", |lines| !lines.servers.is_empty());
    let (status, lines) = live.end(signal);
    let killed = signal == Signal::SIGKILL;
    assert_eq!(status.success(), !killed, "{status}");
    assert_eq!(lines.totals.is_some(), !killed);
    eventually(
        "the program to be gone",
        || (!is_attached(server)).then_some(()),
        String::new,
    );
    ask(client, address, Duration::from_millis(100));
}

#[test]
fn control_c_detaches_and_prints_the_totals() {
    end_by("pint", Signal::SIGINT);
}

#[test]
fn sigterm_detaches_and_prints_the_totals() {
    end_by("pterm", Signal::SIGTERM);
}

#[test]
fn sigkill_leaves_no_program_behind() {
    end_by("pkill", Signal::SIGKILL);
}
