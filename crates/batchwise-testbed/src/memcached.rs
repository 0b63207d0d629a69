//! memcached as a server in a host: one thread, so that a quota and a CPU are all of it.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;

use crate::host::{Host, Place};
use crate::process::Process;
use crate::stop::Stop;

/// The port of the server.
pub const PORT: u16 = 11211;
/// How long it may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running memcached.
#[derive(Debug)]
pub struct Memcached {
    process: Process,
}

impl Memcached {
    /// Starts it in `host`, at [`PORT`], and waits until it answers.
    pub fn start(host: &Host, stop: &Stop) -> Result<Self> {
        let mut command = Command::new("memcached");
        command.args([
            "-u", "root", "-t", "1", "-m", "256", "-c", "4096", "-U", "0",
        ]);
        command.args(["-p", &PORT.to_string(), "-l", "0.0.0.0,::"]);
        let mut process = host
            .spawn("memcached", command, Place::Workload)
            .context("memcached is needed (Debian: apt install memcached)")?;
        process.on_line(drop);
        let answers = stop.wait_until(START_LIMIT, || {
            process.check_alive()?;
            let address = SocketAddr::from(([127, 0, 0, 1], PORT));
            let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok());
            host.inside(connect)
        })?;
        match answers {
            Some(_) => Ok(Self { process }),
            None => bail!(
                "memcached did not answer within {START_LIMIT:?}{}",
                process.quote()
            ),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Fails when it has died.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}
