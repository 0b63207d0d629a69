//! Health: what checks say in a row, and the checks themselves, each on its own schedule in one
//! thread, by the way that traffic takes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use batchwise_core::balance::report;
use rand::Rng;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle as Task;

use super::config::{Check, Kind};

/// The head of an answer is at most this long.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;
/// A schedule varies by so much, so that checks of many balancers do not come together.
const JITTER: f64 = 0.1;
/// The first checks come within this: one that has not ended keeps a new backend from serving.
const FIRST: Duration = Duration::from_millis(100);

/// What a row of checks says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    state: report::Health,
    passed: u32,
    failed: u32,
    why: Option<String>,
}

impl Health {
    /// Before any check.
    pub fn new(state: report::Health) -> Self {
        Self {
            state,
            passed: 0,
            failed: 0,
            why: None,
        }
    }

    /// What holds now.
    pub fn state(&self) -> report::Health {
        self.state
    }

    /// What the last check that failed said, or that all is well.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Checks say that it cannot serve.
    pub fn is_down(&self) -> bool {
        self.state == report::Health::Down
    }

    /// A check ended; true: what holds has changed.
    pub fn checked(&mut self, check: &Check, result: Result<(), String>) -> bool {
        let before = self.state;
        match result {
            Ok(()) => {
                self.passed = self.passed.saturating_add(1);
                self.failed = 0;
                if before != report::Health::Down || self.passed >= check.rise {
                    self.state = report::Health::Up;
                    self.why = None;
                }
            }
            Err(why) => {
                self.failed = self.failed.saturating_add(1);
                self.passed = 0;
                self.why = Some(why);
                if self.failed >= check.fall {
                    self.state = report::Health::Down;
                }
            }
        }
        self.state != before
    }
}

/// A check that is to be made again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The backend's index.
    pub index: u16,
    /// Where: the service's address.
    pub address: IpAddr,
    /// SO_MARK: makes packets go to this backend.
    pub mark: u32,
    /// What.
    pub check: Check,
}

/// A check that ended.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The backend's index.
    pub index: u16,
    /// Passed, or why not.
    pub result: Result<(), String>,
}

/// Makes the checks.
pub struct Checker {
    targets: Option<UnboundedSender<Vec<Target>>>,
    results: Receiver<Checked>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    /// Starts the thread, in the calling thread's network namespace.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the runtime for health checks")?;
        let (targets, wanted) = unbounded_channel();
        let (tell, results) = channel();
        let thread = std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || runtime.block_on(keep(wanted, tell)))
            .context("starting the thread that checks health")?;
        Ok(Self {
            targets: Some(targets),
            results,
            thread: Some(thread),
        })
    }

    /// From now on these are checked; the schedule of one that stays as it was goes on.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn set(&self, targets: Vec<Target>) -> anyhow::Result<()> {
        let sent = self.targets.as_ref().map(|t| t.send(targets));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(anyhow!("the thread that checks health has ended")),
        }
    }

    /// Checks that ended since the last call.
    pub fn results(&self) -> impl Iterator<Item = Checked> + '_ {
        self.results.try_iter()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.targets = None;
        if let Some(thread) = self.thread.take() {
            // a panic there has been printed
            let _ = thread.join();
        }
    }
}

async fn keep(mut wanted: UnboundedReceiver<Vec<Target>>, tell: Sender<Checked>) {
    let mut running: HashMap<u16, (Target, Task<()>)> = HashMap::new();
    while let Some(targets) = wanted.recv().await {
        running.retain(|_, (target, task)| {
            let stays = targets.contains(target);
            if !stays {
                task.abort();
            }
            stays
        });
        for target in targets {
            running.entry(target.index).or_insert_with(|| {
                let task = tokio::spawn(again_and_again(target.clone(), tell.clone()));
                (target, task)
            });
        }
    }
}

async fn again_and_again(target: Target, tell: Sender<Checked>) {
    // the first ones at once, but not all in the same instant
    let mut wait = target
        .check
        .interval
        .mul_f64(JITTER)
        .min(FIRST)
        .mul_f64(random());
    loop {
        tokio::time::sleep(wait).await;
        let begun = tokio::time::Instant::now();
        let result = match tokio::time::timeout(target.check.timeout, once(&target)).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "no answer within {}",
                humantime::format_duration(target.check.timeout)
            )),
        };
        let index = target.index;
        if tell.send(Checked { index, result }).is_err() {
            return;
        }
        let every = target
            .check
            .interval
            .mul_f64(1.0 - JITTER + 2.0 * JITTER * random());
        wait = every.saturating_sub(begun.elapsed());
    }
}

/// 0 to 1.
fn random() -> f64 {
    rand::rng().random()
}

async fn once(target: &Target) -> Result<(), String> {
    let at = SocketAddr::new(target.address, target.check.port);
    let socket = socket(at, target.mark).map_err(|e| format!("opening a socket: {e}"))?;
    let mut stream = socket
        .connect(at)
        .await
        .map_err(|e| format!("connecting: {}", plain(&e)))?;
    match &target.check.kind {
        Kind::None | Kind::Tcp => Ok(()),
        Kind::Http { path, host, status } => {
            let code = get(&mut stream, path, host).await?;
            if status.contains(&code) {
                Ok(())
            } else {
                Err(format!("HTTP status {code}"))
            }
        }
    }
}

fn socket(to: SocketAddr, mark: u32) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_mark(mark)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

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
async fn get(stream: &mut TcpStream, path: &str, host: &str) -> Result<u16, String> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: batchwise-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|e| format!("asking: {}", plain(&e)))?;
    let mut head = Vec::new();
    loop {
        if let Some(code) = status(&head)? {
            return Ok(code);
        }
        if head.len() >= HEAD {
            return Err("the head of the answer is too long".to_owned());
        }
        let mut part = [0; 2048];
        let read = stream.read(&mut part).await;
        match read.map_err(|e| format!("reading the answer: {}", plain(&e)))? {
            0 => return Err("closed before it answered".to_owned()),
            n => head.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
}

/// The status in the head of an answer, once it is whole.
fn status(head: &[u8]) -> Result<Option<u16>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    match answer.parse(head) {
        Ok(httparse::Status::Complete(_)) => Ok(answer.code),
        // its first line is all that matters
        Ok(httparse::Status::Partial) => Ok(answer.code.filter(|_| answer.reason.is_some())),
        Err(httparse::Error::TooManyHeaders) => Ok(answer.code),
        Err(error) => Err(format!("no HTTP answer ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::balance::report::Health as State;

    use super::*;

    fn check(rise: u32, fall: u32) -> Check {
        Check {
            kind: Kind::Tcp,
            port: 80,
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(200),
            rise,
            fall,
        }
    }

    fn fail() -> Result<(), String> {
        Err("refused".to_owned())
    }

    #[test]
    fn a_backend_serves_until_as_many_checks_in_a_row_as_fall_have_failed() {
        let (check, mut health) = (check(2, 3), Health::new(State::Unknown));
        assert!(!health.is_down());
        assert!(!health.checked(&check, fail()));
        assert!(!health.checked(&check, fail()));
        assert!(!health.is_down());
        assert!(health.checked(&check, fail()));
        assert!(health.is_down());
        assert_eq!(health.why(), Some("refused"));
    }

    #[test]
    fn a_check_that_passes_between_failures_keeps_it_up() {
        let (check, mut health) = (check(2, 2), Health::new(State::Unknown));
        assert!(health.checked(&check, Ok(())));
        for _ in 0..10 {
            assert!(!health.checked(&check, fail()));
            assert!(!health.checked(&check, Ok(())));
        }
        assert_eq!(health.state(), State::Up);
    }

    #[test]
    fn a_backend_that_is_down_comes_back_after_as_many_passes_in_a_row_as_rise() {
        let (check, mut health) = (check(3, 1), Health::new(State::Down));
        for result in [Ok(()), Ok(()), fail(), Ok(()), Ok(())] {
            assert!(!health.checked(&check, result));
        }
        assert!(health.checked(&check, Ok(())));
        assert_eq!((health.state(), health.why()), (State::Up, None));
    }

    #[test]
    fn the_status_is_known_with_the_first_line_and_garbage_is_none() {
        assert_eq!(status(b"HTTP/1.1 20"), Ok(None));
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\nA: b"), Ok(Some(204)));
        assert_eq!(status(b"HTTP/1.0 503 \r\n\r\n"), Ok(Some(503)));
        assert!(status(b"220 smtp ready\r\n").is_err());
    }

    #[test]
    fn a_listener_passes_a_tcp_check_and_a_closed_port_fails_it_and_says_so() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let target = |index, port| Target {
            index,
            address: [127, 0, 0, 1].into(),
            mark: 0,
            check: Check {
                port,
                ..check(1, 1)
            },
        };
        let closed = {
            let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            closed.local_addr().expect("its address").port()
        };
        let checker = Checker::start().expect("a thread");
        let targets = vec![target(1, port), target(2, closed)];
        checker.set(targets).expect("it runs");
        let (mut open, mut refused) = (None, None);
        while open.is_none() || refused.is_none() {
            for checked in checker.results() {
                match checked.index {
                    1 => open = Some(checked.result),
                    _ => refused = Some(checked.result),
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(open, Some(Ok(())));
        assert_eq!(refused, Some(Err("connecting: refused".to_owned())));
    }
}
