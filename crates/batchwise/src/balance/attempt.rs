//! One health check: it connects by the way of the traffic, asks, and says how that ended; and
//! whether that says anything of the backend at all.

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::config::{Check, Kind};

/// The head of an answer is at most this long.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;

/// A check that is to be made again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub index: u16,
    /// Where: the service's address.
    pub address: IpAddr,
    /// SO_MARK: makes packets go to this backend.
    pub mark: u32,
    pub check: Check,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend answers as it should.
    Passed,
    /// It does not, and what it does.
    Failed(String),
    /// It did not leave as traffic does, and says nothing of the backend.
    Unprobed,
    /// This machine could not make it, why, and the remedy; it says nothing of the backend.
    Local(String),
}

/// What went wrong.
struct Trouble {
    what: String,
    errno: Option<Errno>,
}

impl Trouble {
    fn new(what: String) -> Self {
        Self { what, errno: None }
    }

    fn io(doing: &str, error: io::Error) -> Self {
        Self {
            what: format!("{doing}: {}", plain(&error)),
            errno: error.raw_os_error().map(Errno::from_raw),
        }
    }

    /// What to do, if it is this machine's own trouble; `left`: packets went to the backend.
    fn remedy(&self, left: bool) -> Option<&'static str> {
        match self.errno? {
            Errno::EADDRNOTAVAIL => Some(
                "no local port is free for them: widen `sysctl net.ipv4.ip_local_port_range`, or check less often",
            ),
            Errno::EMFILE => Some(
                "this process has too many open files: raise LimitNOFILE= of the unit, or `ulimit -Hn`",
            ),
            Errno::ENFILE => {
                Some("the machine has too many open files: raise `sysctl fs.file-max`")
            }
            Errno::ENOBUFS | Errno::ENOMEM => Some(
                "the machine is short of memory for them: free some, or raise `sysctl net.ipv4.tcp_mem`",
            ),
            // a router's answer can be the same
            Errno::EPERM | Errno::EACCES if !left => Some(
                "this machine does not let them out: let packets with the mark 0x62770000/0xffff0000 pass its firewall",
            ),
            _ => None,
        }
    }
}

/// Makes a check. `syns` counts those that left for a backend on the way of the traffic.
pub async fn attempt(
    target: &Target,
    syns: &(dyn Fn(u16) -> Option<u64> + Send + Sync),
) -> Outcome {
    let before = syns(target.index);
    let timeout = target.check.timeout;
    let result = tokio::time::timeout(timeout, once(target)).await;
    let left = match (before, syns(target.index)) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => 0,
    };
    match result {
        // one that was sent again may have been answered by whom the first one did not go to
        Ok(Ok(again)) if left > u64::from(again) => Outcome::Passed,
        Ok(Err(trouble)) => match trouble.remedy(left > 0) {
            Some(remedy) => Outcome::Local(format!("{} ({remedy})", trouble.what)),
            None if left > 0 => Outcome::Failed(trouble.what),
            None => Outcome::Unprobed,
        },
        Err(_) if left > 0 => {
            let timeout = humantime::format_duration(timeout);
            Outcome::Failed(format!("no answer within {timeout}"))
        }
        Ok(Ok(_)) | Err(_) => Outcome::Unprobed,
    }
}

/// How many packets of the handshake were sent again, when all is well.
async fn once(target: &Target) -> Result<u32, Trouble> {
    let at = SocketAddr::new(target.address, target.check.port);
    let socket = socket(at, target.mark).map_err(|e| Trouble::io("opening a socket", e))?;
    let connected = socket.connect(at).await;
    let mut stream = connected.map_err(|e| Trouble::io("connecting", e))?;
    let info = getsockopt(&stream, GetTcpInfo);
    let info = info.map_err(|e| Trouble::io("asking the socket", e.into()))?;
    let again = info.total_retrans;
    match &target.check.kind {
        Kind::None | Kind::Tcp => Ok(again),
        Kind::Http { path, host, status } => {
            let code = get(&mut stream, path, host).await?;
            if status.contains(&code) {
                Ok(again)
            } else {
                Err(Trouble::new(format!("HTTP status {code}")))
            }
        }
    }
}

fn socket(to: SocketAddr, mark: u32) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_mark(mark)?;
    // a reset at its end: all checks have the same destination, and TIME_WAIT keeps a port for a minute
    socket.set_linger(Some(Duration::ZERO))?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// The kernel's counters of a connection, up to the one that is asked for: older kernels have fewer than
/// `libc::tcp_info`, and the length must fit.
#[derive(Clone, Copy)]
#[repr(C)]
struct TcpInfo {
    _before: [u8; offset_of!(libc::tcp_info, tcpi_total_retrans)],
    total_retrans: u32,
}

#[derive(Clone, Copy)]
struct GetTcpInfo;

nix::getsockopt_impl!(
    GetTcpInfo,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfo,
    GetStruct<TcpInfo>
);

/// Without the operating system's number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused".to_owned(),
        io::ErrorKind::ConnectionReset => "reset".to_owned(),
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// The status of the answer to a GET.
async fn get(stream: &mut TcpStream, path: &str, host: &str) -> Result<u16, Trouble> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: batchwise-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|e| Trouble::io("asking", e))?;
    let mut head = Vec::new();
    loop {
        if let Some(code) = status(&head).map_err(Trouble::new)? {
            return Ok(code);
        }
        if head.len() >= HEAD {
            let what = "the head of the answer is too long";
            return Err(Trouble::new(what.to_owned()));
        }
        let mut part = [0; 2048];
        let read = stream.read(&mut part).await;
        match read.map_err(|e| Trouble::io("reading the answer", e))? {
            0 => return Err(Trouble::new("closed before it answered".to_owned())),
            n => head.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
}

/// The status in the head of an answer, once it is whole; interim ones (RFC 9110 15.2) are passed over.
pub fn status(mut head: &[u8]) -> Result<Option<u16>, String> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let parsed = answer.parse(head);
        let is_interim = matches!(answer.code, Some(100 | 102..=199));
        match parsed {
            Ok(httparse::Status::Complete(end)) if is_interim => {
                head = head.get(end..).unwrap_or_default();
            }
            Ok(httparse::Status::Partial) if is_interim => return Ok(None),
            Ok(httparse::Status::Complete(_)) => return Ok(answer.code),
            // its first line is all that matters
            Ok(httparse::Status::Partial) => {
                return Ok(answer.code.filter(|_| answer.reason.is_some()));
            }
            Err(httparse::Error::TooManyHeaders) => return Ok(answer.code),
            Err(error) => return Err(format!("no HTTP answer ({error})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_known_with_the_first_line_and_garbage_is_none() {
        assert_eq!(status(b"HTTP/1.1 20"), Ok(None));
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\nA: b"), Ok(Some(204)));
        assert_eq!(status(b"HTTP/1.0 503 \r\n\r\n"), Ok(Some(503)));
        assert!(status(b"220 smtp ready\r\n").is_err());
    }

    #[test]
    fn interim_answers_are_not_the_answer() {
        let hints = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
        let after = |rest: &[u8]| status(&[&hints[..], hints, rest].concat());
        assert_eq!(after(b""), Ok(None));
        assert_eq!(status(&hints[..30]), Ok(None));
        assert_eq!(after(b"HTTP/1.1 200 OK\r\n"), Ok(Some(200)));
        assert_eq!(after(b"HTTP/1.1 503 \r\n\r\n"), Ok(Some(503)));
        assert!(after(b"220 smtp ready\r\n").is_err());
        let many = b"HTTP/1.1 100\r\n\r\n".repeat(HEAD / 16);
        assert_eq!(status(&many), Ok(None));
        let switched = status(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
        assert_eq!(switched, Ok(Some(101)));
    }

    #[test]
    fn what_this_machine_cannot_do_has_a_remedy_and_what_others_answer_has_none() {
        let trouble = |errno: Errno| Trouble::io("connecting", errno.into());
        for (errno, remedy) in [
            (Errno::EADDRNOTAVAIL, "ip_local_port_range"),
            (Errno::EMFILE, "LimitNOFILE="),
            (Errno::ENFILE, "fs.file-max"),
            (Errno::ENOBUFS, "tcp_mem"),
            (Errno::ENOMEM, "tcp_mem"),
            (Errno::EPERM, "firewall"),
            (Errno::EACCES, "firewall"),
        ] {
            let said = trouble(errno).remedy(false);
            assert!(
                said.is_some_and(|s| s.contains(remedy)),
                "{errno}: {said:?}"
            );
        }
        assert_eq!(trouble(Errno::EACCES).remedy(true), None);
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT] {
            assert_eq!(trouble(errno).remedy(false), None);
        }
    }
}
