//! The hosts of a soak, and where its agents find what they need.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use batchwise_testbed::segment::{SERVERS, Segment};
use batchwise_testbed::triangle::Triangle;

use crate::balance::agent::{Settings, WEB, WEB6};
use crate::balance::faults::settings;

/// What pins and the balancer's control socket are called.
pub const BALANCER: &str = "soak";

/// The hosts and what agents find there.
pub struct Ground {
    pub triangle: Triangle,
    pub segment: Segment,
    /// Of the configuration, logs and sockets.
    pub folder: PathBuf,
    pub command: PathBuf,
}

impl Ground {
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("lb.toml")
    }

    pub fn window_socket(&self) -> PathBuf {
        self.folder.join("window.sock")
    }

    pub fn hint_socket(&self) -> PathBuf {
        self.folder.join("hint.sock")
    }

    /// Writes the balancer's configuration with these weights.
    pub fn configure(&self, weights: [u32; SERVERS as usize]) -> Result<()> {
        let settings = Settings {
            weights,
            ..settings()
        };
        self.write(&settings.text(BALANCER))
    }

    /// Writes anything in its place.
    pub fn write(&self, text: &str) -> Result<()> {
        // as an editor does: there is always a whole file
        let part = self.folder.join("lb.part");
        fs::write(&part, text).and_then(|()| fs::rename(&part, self.configuration()))?;
        Ok(())
    }

    /// Runs `batchwise balance` with these arguments, to its end.
    pub fn balance(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.command);
        command.arg("balance").args(args).args(["--name", BALANCER]);
        command.env("BATCHWISE_RUN_DIR", &self.folder);
        let output = self.segment.balancer.inside(|| Ok(command.output()?))?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "`balance {args:?}`: {}",
            said.trim()
        );
        Ok(())
    }

    pub fn services() -> [&'static str; 2] {
        [WEB, WEB6]
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = self.balance(&["remove"]) {
            tracing::warn!("{error:#}");
        }
    }
}
