//! However it ends, no program stays on the interface, and traffic goes on.

use std::time::Duration;

use batchwise_testbed::stage::{Stage, eventually};
use nix::sys::signal::Signal;

use crate::passive::run::{Live, is_attached};
use crate::passive::service::{ask, start};

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

#[test]
fn when_its_interface_goes_it_says_so_and_ends() {
    let stage = Stage::build("pgone");
    let server = &stage.hosts.server;
    let ip = |what: &str| server.namespace().ip(what).expect("ip takes it");
    for attach in ["native", "tc"] {
        ip("link add bw-goes type veth peer name bw-goes-too");
        ip("link set bw-goes up");
        let mut live = Live::launch_at(server, "bw-goes", &["--attach", attach]);
        live.await_attached();
        ip("link del bw-goes");
        let (status, said) = live.await_end();
        assert_eq!(status.code(), Some(1), "{attach}: {said}");
        assert!(said.contains("bw-goes is gone"), "{attach}: {said}");
    }
}
