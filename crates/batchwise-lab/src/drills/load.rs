//! Applications at work: connections that ask Redis for echoes and check every byte that comes back.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::Host;
use batchwise_testbed::process::lock;
use batchwise_testbed::stop::Stop;

use super::outcome::Traffic;

/// An answer that takes longer is none: more than any machine's slowness.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many replies must come on until load is seen to go on.
const MORE: u64 = 200;
/// Threads that ask.
const THREADS: usize = 2;
/// Requests in one go, each in a call of its own: there is something to batch.
const TOGETHER: usize = 4;

/// A socket, and whether its application asked for TCP_NODELAY.
#[derive(Debug)]
pub struct Socket {
    pub stream: Arc<TcpStream>,
    pub nodelay: bool,
}

/// What applications ask for: every second connection for TCP_NODELAY.
pub const MIXED: fn(usize) -> bool = |index| index % 2 == 0;

impl Socket {
    /// Connects from the calling thread's namespace, by this process (and its cgroup).
    pub fn connect(to: SocketAddr, nodelay: bool) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(nodelay)?;
        let stream = Arc::new(stream);
        Ok(Self { stream, nodelay })
    }

    /// Whether getsockopt() says something else than the application asked for.
    pub fn is_astray(&self) -> bool {
        self.stream.nodelay().ok() != Some(self.nodelay)
    }
}

/// How many are not as their applications asked.
pub fn astray(sockets: &[Socket]) -> usize {
    sockets.iter().filter(|s| s.is_astray()).count()
}

#[derive(Debug, Default)]
struct Counts {
    replies: AtomicU64,
    broken: AtomicU64,
    wrong: AtomicU64,
    first: Mutex<Option<String>>,
}

/// Connections in use until it is dropped.
pub struct Load {
    pub sockets: Vec<Socket>,
    counts: Arc<Counts>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Connects `count` times from the client's namespace, by this process (and its cgroup); those of which
    /// `nodelay` says so ask for TCP_NODELAY. Then all ask, over and over.
    pub fn start(
        client: &Host,
        to: SocketAddr,
        count: usize,
        nodelay: fn(usize) -> bool,
    ) -> Result<Self> {
        let sockets = client.inside(|| {
            let sockets = (0..count).map(|index| Socket::connect(to, nodelay(index)));
            let sockets: io::Result<Vec<_>> = sockets.collect();
            sockets.with_context(|| format!("connecting {count} times to {to}"))
        })?;
        Ok(Self::over(sockets))
    }

    /// The same over connections that there are.
    pub fn over(sockets: Vec<Socket>) -> Self {
        let mut load = Self {
            sockets,
            counts: Arc::default(),
            over: Arc::default(),
            threads: Vec::new(),
        };
        for thread in 0..THREADS {
            let own = load.sockets.iter().enumerate().skip(thread);
            let own = own.step_by(THREADS).map(|(id, s)| (id, s.stream.clone()));
            let own: Vec<_> = own.collect();
            let (counts, over) = (load.counts.clone(), load.over.clone());
            let work = move || work(own, &counts, &over);
            load.threads.push(std::thread::spawn(work));
        }
        load
    }

    /// Waits until many more replies have come.
    pub fn goes_on(&self, stop: &Stop) -> Result<()> {
        let goal = self.counts.replies.load(Ordering::Relaxed) + MORE;
        let there = || Ok((self.counts.replies.load(Ordering::Relaxed) >= goal).then_some(()));
        match stop.wait_until(PATIENCE, there)? {
            Some(()) => Ok(()),
            None => bail!("no {MORE} replies came within {PATIENCE:?}"),
        }
    }

    /// Replies so far.
    pub fn replies(&self) -> u64 {
        self.counts.replies.load(Ordering::Relaxed)
    }

    /// Ends it; what it saw, and the first thing that was wrong.
    pub fn finish(mut self) -> (Traffic, Option<String>) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // a panic was printed there, and its connections answer no more
            let _ = thread.join();
        }
        let traffic = Traffic {
            connections: self.sockets.len() as u64,
            requests: self.replies(),
            broken: self.counts.broken.load(Ordering::Relaxed),
            wrong_replies: self.counts.wrong.load(Ordering::Relaxed),
        };
        (traffic, lock(&self.counts.first).take())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn work(mut own: Vec<(usize, Arc<TcpStream>)>, counts: &Counts, over: &AtomicBool) {
    for round in 0u64.. {
        own.retain(|(id, stream)| {
            if over.load(Ordering::Relaxed) {
                return true;
            }
            let text = format!("{id}-{round}");
            let why = match echo(stream, &text, TOGETHER) {
                Ok(true) => {
                    counts.replies.fetch_add(TOGETHER as u64, Ordering::Relaxed);
                    return true;
                }
                Ok(false) => {
                    counts.wrong.fetch_add(1, Ordering::Relaxed);
                    format!("connection {id} got another reply than {text:?}")
                }
                Err(error) => {
                    counts.broken.fetch_add(1, Ordering::Relaxed);
                    format!("connection {id} broke: {error}")
                }
            };
            lock(&counts.first).get_or_insert(why);
            false
        });
        if over.load(Ordering::Relaxed) || own.is_empty() {
            return;
        }
    }
}

/// Asks so often before it reads the first reply; whether all are right.
pub fn echo(mut stream: &TcpStream, text: &str, times: usize) -> io::Result<bool> {
    let request = format!("*2\r\n$4\r\nECHO\r\n$40\r\n{text:>40}\r\n").into_bytes();
    let expected = format!("$40\r\n{text:>40}\r\n").into_bytes();
    for _ in 0..times {
        stream.write_all(&request)?;
    }
    let mut right = true;
    for _ in 0..times {
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply)?;
        right &= reply == expected;
    }
    Ok(right)
}

/// How it went to have sockets given back.
#[derive(Clone, Copy, Debug)]
pub struct GivenBack {
    /// After how long all were; `None`: not in time.
    pub after: Option<Duration>,
    /// How many were not, in the end.
    pub astray: usize,
}

/// Looks every millisecond until none is astray, for at most `limit` after `since`. By how much this
/// thread, which has little to do, wakes up too late does not count: the machine stood still, or had no CPU.
pub fn given_back(astray: impl Fn() -> usize, since: Instant, limit: Duration) -> GivenBack {
    const LOOK: Duration = Duration::from_millis(1);
    let mut late = Duration::ZERO;
    loop {
        let left = astray();
        let after = since.elapsed().saturating_sub(late);
        if left == 0 || after >= limit {
            return GivenBack {
                after: (left == 0).then_some(after),
                astray: left,
            };
        }
        let asleep = Instant::now();
        std::thread::sleep(LOOK);
        late += asleep.elapsed().saturating_sub(LOOK);
    }
}
