//! Starting a server in a host.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::host::{Host, Role};
use crate::process::Process;
use crate::stop::Stop;

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Starts `command` in `host` and waits until `greet` succeeds on a connection to `port`. Messages call
/// it `name`; Debian has it in `package`.
pub fn start(
    host: &Host,
    (name, package): (&str, &str),
    command: Command,
    port: u16,
    greet: fn(TcpStream) -> io::Result<()>,
    stop: &Stop,
) -> Result<Process> {
    let mut process = host
        .spawn(name, command, Role::Workload)
        .with_context(|| format!("{name} is needed (Debian: apt install {package})"))?;
    // Read, so that it never blocks on a full pipe.
    process.on_line(drop);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let limit = Duration::from_secs(1);
    let answers = stop.wait_until(START_LIMIT, || {
        process.check_alive()?;
        host.inside(|| {
            let stream = TcpStream::connect_timeout(&address, limit);
            let greeted = stream.and_then(|stream| {
                stream.set_read_timeout(Some(limit))?;
                greet(stream)
            });
            Ok(greeted.ok())
        })
    })?;
    match answers {
        Some(()) => Ok(process),
        None => bail!(
            "{name} did not answer within {START_LIMIT:?}{}",
            process.quote()
        ),
    }
}
