//! An agent's metrics, as Prometheus asks for them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::host::Host;

/// The whole answer, its head included. Each step takes at most so long.
pub fn scrape(host: &Host, address: SocketAddr, patience: Duration) -> Result<String> {
    host.inside(|| {
        let mut stream = TcpStream::connect_timeout(&address, patience)
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bw\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })
}
