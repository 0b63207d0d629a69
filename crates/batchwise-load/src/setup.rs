//! Before the load: connections, file-descriptor limit, and keys that exist, so that a GET finds
//! a value of the right size.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

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
pub(crate) fn connect(config: &Config) -> Result<Vec<Conn>> {
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
) -> Result<Vec<TcpStream>> {
    allow_files(connections as u64 + SPARE_FILES)?;
    let open = |_| -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(nodelay)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let streams = (0..connections).map(open).collect::<io::Result<_>>();
    streams.map_err(|why| connect_error(addr, why))
}

/// The server could not be reached.
pub(crate) fn connect_error(addr: SocketAddr, why: io::Error) -> anyhow::Error {
    anyhow!("cannot connect to {addr}: {why} (is a server listening there?)")
}

/// The server answered the set-up with an error.
pub(crate) fn refused(addr: SocketAddr, what: &str, reply: &str) -> anyhow::Error {
    anyhow!(
        "{addr} refused {what}: {reply} (the server must accept SET and GET without a password, \
         and as many clients as --connections asks for)"
    )
}

/// Sets every key once.
pub(crate) fn prefill(config: &Config, conn: &mut Conn, requests: &mut Requests) -> Result<()> {
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
    what: &str,
    bytes: &[u8],
    mut replies: usize,
) -> Result<()> {
    let addr = config.addr;
    let mut wrong = false;
    let mut buffer = [0; 1024];
    let sent = conn.stream.write_all(bytes);
    let failed = |why| no_answer(addr, what, why);
    while replies > 0 && !wrong {
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
                wrong |= reply != Reply::Simple;
            })
            .map_err(|why| failed(io::Error::new(ErrorKind::InvalidData, why)))?;
    }
    if wrong {
        let reply = conn.parser.first_error.as_deref();
        let reply = reply.unwrap_or("an unexpected reply");
        return Err(refused(addr, what, reply));
    }
    sent.map_err(failed)
}

/// The server was reached, but did not take part in the set-up.
pub(crate) fn no_answer(addr: SocketAddr, what: &str, why: io::Error) -> anyhow::Error {
    let why = match why.kind() {
        ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("nothing came within {} s", PATIENCE.as_secs())
        }
        _ => why.to_string(),
    };
    anyhow!("{addr} did not answer {what}: {why}")
}

/// Raises the soft limit of open files if it is too low.
fn allow_files(needed: u64) -> Result<()> {
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    let (soft, hard) = limits.context("cannot read the limit of open files")?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| {
        anyhow!(
            "this many connections need {needed} open files, but the limit is {hard}: raise it \
             with `ulimit -n {needed}` or ask for fewer --connections"
        )
    })
}
