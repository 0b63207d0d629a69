//! Connections to one server that rest: they are silent, or their client has closed its half and
//! leaves what it asked for where it is.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::host::Host;
use batchwise_testbed::nginx::PORT;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::clients::{Connection, End, PATIENCE, ask};

/// The file of which the server has more than the client takes.
pub(super) const LONG: &str = "long";
/// Bytes of that: more than a client has room for, less than the server's socket.
const LENGTH: usize = 16 << 10;
/// What a client has room for, bytes; the kernel makes twice as much of it.
const ROOM: usize = 2 << 10;
/// Until the server has given all of its answer to its socket.
const WRITTEN: Duration = Duration::from_millis(50);
/// So many connections are tried for one to a certain server.
const TRIES: usize = 200;

/// What a server's long file holds: its name, again and again.
pub(super) fn long(name: &str) -> String {
    let line = format!("{name}\n");
    line.repeat(LENGTH / line.len())
}

pub(super) struct Resting {
    stream: BufReader<TcpStream>,
    connection: Connection,
    /// Bytes that are still to come, where the client has closed its half.
    left: Option<usize>,
}

/// Opens connections to `service` until `wanted` of them have gone to `server`, which then rest.
pub(super) fn open_to(
    client: &Host,
    service: IpAddr,
    server: &str,
    wanted: usize,
    half_closed: bool,
) -> Result<Vec<Resting>> {
    let mut resting = Vec::new();
    for _ in 0..TRIES {
        if resting.len() == wanted {
            break;
        }
        let opened = client.inside(|| open(service, half_closed))?;
        if opened.connection.was_to(server) {
            resting.push(opened);
        }
    }
    let got = resting.len();
    ensure!(
        got == wanted,
        "{got} of {TRIES} connections went to {server}"
    );
    Ok(resting)
}

fn open(service: IpAddr, half_closed: bool) -> Result<Resting> {
    let mut connection = Connection::asked_for(service);
    let stream = narrow(SocketAddr::from((service, PORT))).context("connecting")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // what is not looked at stays where it is
    let mut stream = BufReader::with_capacity(1, stream);
    let left = if half_closed {
        let length = ask(&mut stream, LONG, service)?;
        let mut server = String::new();
        let taken = stream.read_line(&mut server)?;
        (connection.server, connection.answers) = (Some(server.trim().to_owned()), 1);
        std::thread::sleep(WRITTEN);
        stream.get_ref().shutdown(Shutdown::Write)?;
        Some(length.saturating_sub(taken))
    } else {
        connection.ask(&mut stream)?;
        None
    };
    Ok(Resting {
        stream,
        connection,
        left,
    })
}

/// A connection with little room for what comes.
fn narrow(to: SocketAddr) -> Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::RcvBuf, &ROOM)?;
    // connect() keeps to it, too
    let patience = TimeVal::new(PATIENCE.as_secs().try_into()?, 0);
    setsockopt(&socket, sockopt::SendTimeout, &patience)?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(socket))
}

impl Resting {
    /// Goes on with it to its end.
    pub(super) fn finish(mut self) -> Connection {
        let ended = match self.left {
            Some(left) => self.take(left),
            None => self.connection.ask(&mut self.stream),
        };
        if let Err(error) = ended {
            self.connection.end = End::Broken(error.to_string());
        }
        self.connection.ended = Instant::now();
        self.connection
    }

    fn take(&mut self, left: usize) -> io::Result<()> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        if rest.len() != left {
            let what = format!("{} of {left} bytes came", rest.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        Ok(())
    }
}
