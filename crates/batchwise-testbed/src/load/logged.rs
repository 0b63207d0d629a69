//! A closed-loop load that logs the truth about each of its requests, `batchwise load web`, `memcached`
//! or `quic`: its report, and that log.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;

use crate::host::{Host, Role};
use crate::lines::Printing;
use crate::stop::Stop;

/// A load that is under way. Dropping it ends it.
#[derive(Debug)]
pub struct LoggedLoad {
    load: Printing<String>,
    log: Log,
}

/// A file that goes when it is dropped.
#[derive(Debug)]
struct Log(PathBuf);

impl Drop for Log {
    fn drop(&mut self) {
        // a load that failed early has not written it
        let _ = fs::remove_file(&self.0);
    }
}

impl LoggedLoad {
    /// Starts `batchwise load` with all its arguments but `--log` and `--format`.
    pub fn start(client: &Host, mut command: Command) -> Result<Self> {
        let name = format!("bw-{}.csv", client.namespace().name());
        let log = Log(std::env::temp_dir().join(name));
        command.args(["--format", "json", "--log"]).arg(&log.0);
        let load = Printing::start_text(client, "the load", command, Role::Workload)?;
        Ok(Self { load, log })
    }

    /// Waits for its end; gives its report, and the text of its log.
    ///
    /// # Errors
    /// It failed, or lasted longer than `limit`.
    pub fn finish<R: DeserializeOwned>(
        mut self,
        stop: &Stop,
        limit: Duration,
    ) -> Result<(R, String)> {
        let status = self.load.wait(stop, limit)?;
        let quote = self.load.quote();
        if !status.success() {
            bail!("the load failed ({status}){quote}");
        }
        let report = serde_json::from_str(&self.load.text())
            .with_context(|| format!("what the load printed is not its report{quote}"))?;
        let log = fs::read_to_string(&self.log.0)
            .with_context(|| format!("reading {}", self.log.0.display()))?;
        Ok((report, log))
    }
}
