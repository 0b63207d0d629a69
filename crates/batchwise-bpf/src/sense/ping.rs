//! A connection over loopback whose both ends one thread has, so that nothing is woken and no other CPU
//! takes part: what a request costs, to some ns.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

/// Both ends of a connection.
#[derive(Debug)]
pub struct Ping {
    client: TcpStream,
    server: TcpStream,
}

impl Ping {
    /// Connects; what watches the listener's port sees it.
    ///
    /// # Errors
    /// Where loopback is not there.
    pub fn connect(listener: &TcpListener) -> io::Result<Self> {
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        Ok(Self { client, server })
    }

    /// The mean time of a small request and its answer, ns, of so many.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn requests(&mut self, count: u32) -> io::Result<f64> {
        let mut bytes = [0; 64];
        let begin = Instant::now();
        for _ in 0..count {
            self.client.write_all(&[b'x'; 64])?;
            self.server.read_exact(&mut bytes)?;
            self.server.write_all(b"+OK\r\n")?;
            self.client.read_exact(&mut bytes[..5])?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(count))
    }

    /// The time that an end of a connection takes to begin and end, ns.
    pub(super) fn connections(listener: &TcpListener, count: u32) -> io::Result<f64> {
        let begin = Instant::now();
        for _ in 0..count {
            let ping = Self::connect(listener)?;
            ping.client.shutdown(Shutdown::Both)?;
            ping.server.shutdown(Shutdown::Both)?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(2 * count))
    }
}
