//! The load: one thread that is client and server of one connection over loopback, so that nothing is
//! woken and no other CPU takes part.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context as _, Result};

/// Requests of a batch.
const REQUESTS: u32 = 500;
/// A small SET, and its answer.
const REQUEST: [u8; 64] = [b'x'; 64];
const ANSWER: [u8; 5] = *b"+OK\r\n";

/// Both ends of a connection.
pub struct Ping {
    client: TcpStream,
    server: TcpStream,
}

impl Ping {
    /// Connects; what watches the listener's port, as given, sees it.
    pub fn connect(listener: &TcpListener) -> Result<Self> {
        let client = TcpStream::connect(listener.local_addr()?).context("connecting to myself")?;
        let (server, _) = listener.accept()?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        Ok(Self { client, server })
    }

    /// A listener at a free port of loopback.
    pub fn listen() -> Result<TcpListener> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")
    }

    fn request(&mut self) -> Result<()> {
        let mut bytes = [0; REQUEST.len()];
        self.client.write_all(&REQUEST)?;
        self.server.read_exact(&mut bytes)?;
        self.server.write_all(&ANSWER)?;
        self.client.read_exact(&mut bytes[..ANSWER.len()])?;
        Ok(())
    }

    /// The time that a request takes at one of its two ends, ns.
    pub fn batch(&mut self) -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..REQUESTS {
            self.request()?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(2 * REQUESTS))
    }
}
