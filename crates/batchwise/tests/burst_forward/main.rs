//! `batchwise burst forward` between two hosts, as its users meet it. Needs root.

mod bursts;
mod refused;
mod transfer;

use std::sync::MutexGuard;

use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::{PATIENCE, batchwise, eventually, turn};
use batchwise_testbed::topology::Around;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Client and server with a forwarder between them, whose queue is on the client's way to the server.
struct Place {
    forwarder: Printing<Value>,
    around: Around,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    /// Builds it and waits until the forwarder runs.
    fn build(name: &str, rate: &str, limit: &str, admit: &str) -> Self {
        let turn = turn();
        let around = Around::build(&format!("w-{name}")).expect("three hosts");
        let mut command = batchwise();
        let [from, to] = Around::LINKS;
        command.args([
            "burst", "forward", "--from", from, "--to", to, "--rate", rate,
        ]);
        command.args(["--limit", limit, "--border", "--top", "100"]);
        command.args(["--admit", admit]);
        command.args(["--format", "jsonl", "--interval", "20ms"]);
        let started = Printing::start(&around.middle, "the forwarder", command, Role::Observer);
        let place = Self {
            forwarder: started.expect("it starts"),
            around,
            _turn: turn,
        };
        eventually(
            "a first line",
            || (!place.forwarder.with_lines(<[Value]>::is_empty)).then_some(()),
            || place.forwarder.quote(),
        );
        place
    }

    /// Ends the forwarder: its last line, and those of sources behind that.
    fn end(&mut self) -> (Value, Vec<Value>) {
        let status = self.forwarder.end(Signal::SIGINT, PATIENCE);
        assert!(
            status.expect("it ends").success(),
            "{}",
            self.forwarder.quote()
        );
        let mut lines = self.forwarder.take_lines();
        let last = lines
            .iter()
            .rposition(|line| line["kind"] == "burst-forward");
        let sources = lines.split_off(last.expect("a last line") + 1);
        (lines.pop().expect("a last line"), sources)
    }
}

/// A number of a line.
fn number(line: &Value, field: &str) -> u64 {
    let value = line[field].as_u64();
    value.unwrap_or_else(|| panic!("no {field} in {line}"))
}
