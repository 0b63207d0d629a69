//! Connections of random life whose senders write when TCP can send: what `window` is for.

use std::process::Command;

use anyhow::{Result, ensure};
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use serde::Deserialize;

use super::ground::Ground;

const PORT: u16 = 7_072;
/// Lives at a time, in a run, and between two runs, s.
const AT_ONCE: u32 = 10;
const LIVES: u32 = 100;
const PAUSE_S: u32 = 10;
/// Longer than any soak.
const LASTS: &str = "1000h";

/// What `load lives` says of a run.
#[derive(Debug, Deserialize)]
struct Said {
    lives: u64,
    failed: u64,
    why: Option<String>,
}

/// Run after run, until dropped.
pub struct Lives {
    sender: Printing<Said>,
    receiver: Printing<serde_json::Value>,
}

impl Lives {
    pub fn start(ground: &Ground) -> Result<Self> {
        let address = ground.triangle.server_address(PORT).to_string();
        let mut command = Command::new(&ground.command);
        command.args(["load", "lives-server", "--format", "json", "--addr"]);
        command.args([&address, "--duration", LASTS]);
        let server = &ground.triangle.server;
        let receiver = Printing::start(server, "the receiver", command, Role::Workload)?;
        let script = format!(
            "sleep 1; while :; do \"$0\" load lives --format json --addr {address} --lives {LIVES} \
             --at-once {AT_ONCE} || exit; sleep {PAUSE_S}; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&ground.command);
        command.env("BATCHWISE_WINDOW_SOCKET", ground.window_socket());
        let client = &ground.triangle.client;
        let sender = Printing::start(client, "the sender", command, Role::Workload)?;
        Ok(Self { sender, receiver })
    }

    /// Lives that ended since the last call; fails when not every byte of one arrived as it was sent.
    pub fn take(&mut self) -> Result<u64> {
        self.receiver.check()?;
        self.sender.check()?;
        let said = self.sender.take_lines();
        let failed: u64 = said.iter().map(|said| said.failed).sum();
        let why = said.iter().find_map(|said| said.why.as_deref());
        ensure!(
            failed == 0,
            "{failed} lives failed: {}",
            why.unwrap_or_default()
        );
        Ok(said.iter().map(|said| said.lives).sum())
    }
}
