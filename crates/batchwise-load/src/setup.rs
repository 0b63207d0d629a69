//! Before the load: connections, file-descriptor limit, and keys that exist, so that a GET finds
//! a value of the right size.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::Error;
use crate::config::Config;
use crate::conn::Conn;
use crate::payload::{Request, Requests};
use crate::resp::Reply;

const PATIENCE: Duration = Duration::from_secs(5);
/// Files that the process needs besides its connections.
const SPARE_FILES: u64 = 64;
/// The most bytes of requests that are in flight while the keys are set.
const PREFILL_BYTES: usize = 1 << 20;
/// The most requests of that kind; their replies must fit into the socket buffers.
const PREFILL_REQUESTS: usize = 64;

/// Opens all connections and makes sure that the server serves each of them.
pub(crate) fn connect(config: &Config) -> Result<Vec<Conn>, Error> {
    let streams = open_streams(config.addr, config.connections, config.nodelay)?;
    let mut conns: Vec<_> = streams.into_iter().map(Conn::new).collect();
    for conn in &mut conns {
        exchange(config, conn, "PING", b"PING\r\n", 1)?;
    }
    Ok(conns)
}

/// Opens connections, blocking with a time limit for the set-up.
pub(crate) fn open_streams(
    addr: SocketAddr,
    connections: usize,
    nodelay: bool,
) -> Result<Vec<TcpStream>, Error> {
    allow_files(connections as u64 + SPARE_FILES)?;
    let open = |_| -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(nodelay)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let streams = (0..connections).map(open).collect::<io::Result<_>>();
    streams.map_err(|why| Error::Connect { addr, why })
}

/// Sets every key once.
pub(crate) fn prefill(
    config: &Config,
    conn: &mut Conn,
    requests: &mut Requests,
) -> Result<(), Error> {
    for size in 0..requests.sizes() {
        let set = |key| Request {
            key,
            size,
            get: false,
        };
        let length = requests.bytes(set(0)).len();
        let batch = (PREFILL_BYTES / length).clamp(1, PREFILL_REQUESTS);
        let mut bytes = Vec::with_capacity(batch * length);
        let mut key = 0;
        while key < requests.keys() {
            bytes.clear();
            let until = requests.keys().min(key + batch as u32);
            for key in key..until {
                bytes.extend_from_slice(requests.bytes(set(key)));
            }
            exchange(config, conn, "SET", &bytes, (until - key) as usize)?;
            key = until;
        }
    }
    Ok(())
}

fn exchange(
    config: &Config,
    conn: &mut Conn,
    what: &'static str,
    bytes: &[u8],
    mut replies: usize,
) -> Result<(), Error> {
    let addr = config.addr;
    let mut refused = false;
    let mut buffer = [0; 1024];
    let sent = conn.stream.write_all(bytes);
    let failed = |why: io::Error| Error::Setup {
        addr,
        what,
        why: explain(why),
    };
    while replies > 0 && !refused {
        // A server that refuses a connection may close it before the request is written: what
        // it said counts more than the failed write.
        let length = match conn.stream.read(&mut buffer) {
            Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
            Ok(length) => length,
            Err(why) => return Err(failed(why)),
        };
        conn.parser
            .feed(&buffer[..length], |reply| {
                replies = replies.saturating_sub(1);
                refused |= reply != Reply::Simple;
            })
            .map_err(|why| failed(io::Error::new(ErrorKind::InvalidData, why)))?;
    }
    if refused {
        let reply = conn
            .parser
            .first_error()
            .unwrap_or_else(|| "an unexpected reply".to_owned());
        return Err(Error::Refused { addr, what, reply });
    }
    sent.map_err(failed)
}

/// What a failed set-up means.
pub(crate) fn explain(why: io::Error) -> io::Error {
    match why.kind() {
        ErrorKind::UnexpectedEof => io::Error::new(why.kind(), "it closed the connection"),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(
            why.kind(),
            format!("nothing came within {} s", PATIENCE.as_secs()),
        ),
        _ => why,
    }
}

/// Raises the soft limit of open files if it is too low.
pub(crate) fn allow_files(needed: u64) -> Result<(), Error> {
    let failed = |why: nix::Error| Error::system("cannot read the limit of open files", why);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| {
        Error::Config(format!(
            "this many connections need {needed} open files, but the limit is {hard}: raise it \
             with `ulimit -n {needed}` or ask for fewer --connections"
        ))
    })
}
