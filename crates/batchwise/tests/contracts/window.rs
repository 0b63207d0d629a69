//! The lines of `batchwise window`.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use batchwise_testbed::stage::{Stage, scrape::METRICS};
use batchwise_window::{SOCKET_VARIABLE, Set};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Running, at};

#[test]
fn applications_and_what_they_are_told() {
    let stage = Stage::build("ct-window");
    let client = &stage.hosts.client;
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("window.sock");
    let options = format!("--socket {} --metrics {METRICS}", socket.display());
    let agent = Running::agent(client, &format!("window --format jsonl {options}"));
    let address = stage.hosts.server_address(7070);
    let listener = at(&stage.hosts.server, || TcpListener::bind(address));
    let stream = at(client, || TcpStream::connect(address));
    let _accepted = listener.accept().expect("its other end");
    // SAFETY: tests of a stage take turns, and nothing else reads this variable.
    unsafe { std::env::set_var(SOCKET_VARIABLE, &socket) };
    let set = Set::new().expect("a set");
    let added = set.add(stream.as_fd(), 1);
    added.expect("the agent takes it");
    hold("window", || agent.lines());
    hold_metrics("window-metrics", client);
    let (lines, code) = agent.end(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    hold_now("window", &lines);
}
