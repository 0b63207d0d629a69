//! memcached as a server in a host: one thread, so that a quota and a CPU are all of it.

use std::process::Command;

use anyhow::Result;
use nix::unistd::Pid;

use crate::host::Host;
use crate::process::Process;
use crate::server;
use crate::stop::Stop;

/// The port of the server.
pub const PORT: u16 = 11211;

/// A running memcached.
#[derive(Debug)]
pub struct Memcached(Process);

impl Memcached {
    /// Starts it in `host`, at [`PORT`], and waits until it answers.
    pub fn start(host: &Host, stop: &Stop) -> Result<Self> {
        let mut command = Command::new("memcached");
        let arguments = format!("-u root -t 1 -m 256 -c 4096 -U 0 -p {PORT} -l 0.0.0.0,::");
        command.args(arguments.split(' '));
        let names = ("memcached", "memcached");
        server::start(host, names, command, PORT, |_| Ok(()), stop).map(Self)
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Fails when it has died.
    pub fn check_alive(&mut self) -> Result<()> {
        self.0.check_alive()
    }
}
