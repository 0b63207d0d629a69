//! Clients that keep connections for a while and know exactly what became of each: which server
//! answered, and whether it broke while requests were sent.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use batchwise_testbed::nginx::PORT;
use batchwise_testbed::process::lock;
use batchwise_testbed::segment::{Segment, VIP, VIP6};
use batchwise_testbed::stop::Stop;
use rand::Rng as _;

use super::super::agent::LIMIT;

/// The file that says which server it is.
pub(crate) const WHO: &str = "who";
/// An answer or a connection that takes longer is none: more than any machine's slowness.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// Connections of each client at a time; half of them IPv4.
const WORKERS: usize = 24;
/// Requests of a connection, and time between two: it lives for 50 ms to 2 s.
const REQUESTS: std::ops::Range<u32> = 5..100;
const PAUSE: Duration = Duration::from_millis(20);

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As the client wanted.
    Closed,
    /// It was never opened.
    Refused(String),
    /// In the midst of its requests.
    Broken(String),
}

/// A connection, from the view of its client.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub service: IpAddr,
    pub server: Option<String>,
    pub began: Instant,
    pub ended: Instant,
    pub answers: u64,
    /// Its last answer was another server's.
    pub misled: bool,
    /// What was waited for longest: it, or an answer.
    pub longest: Duration,
    pub end: End,
}

impl Connection {
    /// Now, and nothing has come of it yet.
    pub(super) fn asked_for(service: IpAddr) -> Self {
        let now = Instant::now();
        Self {
            service,
            server: None,
            began: now,
            ended: now,
            answers: 0,
            misled: false,
            longest: Duration::ZERO,
            end: End::Closed,
        }
    }

    pub(super) fn was_to(&self, server: &str) -> bool {
        self.server.as_deref() == Some(server)
    }

    /// Asks which server it goes to, which must always be the same.
    pub(super) fn ask(&mut self, stream: &mut BufReader<TcpStream>) -> io::Result<()> {
        let asked = Instant::now();
        let name = ask(stream, WHO, self.service).and_then(|length| {
            let mut name = vec![0; length];
            stream.read_exact(&mut name)?;
            Ok(String::from_utf8_lossy(&name).trim().to_owned())
        });
        self.longest = self.longest.max(asked.elapsed());
        let name = name?;
        self.answers += 1;
        match &self.server {
            Some(server) if *server != name => {
                self.misled = true;
                let what = format!("{name} answered on a connection to {server}");
                Err(io::Error::other(what))
            }
            _ => {
                self.server = Some(name);
                Ok(())
            }
        }
    }
}

/// What all clients saw so far.
#[derive(Default)]
pub(super) struct Watch {
    done: Mutex<Vec<Connection>>,
    over: AtomicBool,
}

impl Watch {
    /// Waits until a connection that is like this has ended, for a limited time.
    pub(super) fn await_any(&self, stop: &Stop, like: impl Fn(&Connection) -> bool) -> Result<()> {
        let look = || Ok(lock(&self.done).iter().any(&like).then_some(()));
        stop.wait_until(LIMIT, look).map(|_| ())
    }
}

/// Has clients at work while `during` runs; what it gives, and all connections.
pub(super) fn while_clients_work<T>(
    segment: &Segment,
    during: impl FnOnce(&Watch) -> Result<T>,
) -> Result<(T, Vec<Connection>)> {
    let watch = Watch::default();
    let given = thread::scope(|scope| {
        let watch = &watch;
        let clients: Vec<_> = segment
            .clients
            .iter()
            .map(|client| scope.spawn(|| client.inside(|| work(watch))))
            .collect();
        let given = during(watch);
        watch.over.store(true, Ordering::Relaxed);
        for client in clients {
            let worked = client.join().map_err(|_| anyhow!("a client panicked"))?;
            worked.context("running clients")?;
        }
        given
    })?;
    let connections = watch.done.into_inner();
    Ok((given, connections.unwrap_or_default()))
}

/// The threads of one client, whose namespace the calling thread is in.
fn work(watch: &Watch) -> Result<()> {
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let service: IpAddr = if worker % 2 == 0 {
                VIP.into()
            } else {
                VIP6.into()
            };
            scope.spawn(move || {
                while !watch.over.load(Ordering::Relaxed) {
                    let connection = connection(service, &watch.over);
                    let failed = connection.end != End::Closed;
                    lock(&watch.done).push(connection);
                    if failed {
                        thread::sleep(PAUSE); // no storm
                    }
                }
            });
        }
    });
    Ok(())
}

fn connection(service: IpAddr, over: &AtomicBool) -> Connection {
    let mut connection = Connection::asked_for(service);
    let opened = TcpStream::connect_timeout(&SocketAddr::from((service, PORT)), PATIENCE);
    connection.longest = connection.began.elapsed();
    connection.end = match opened {
        Ok(stream) => match talk(stream, &mut connection, over) {
            Ok(()) => End::Closed,
            Err(error) => End::Broken(error.to_string()),
        },
        Err(error) => End::Refused(error.to_string()),
    };
    connection.ended = Instant::now();
    connection
}

fn talk(stream: TcpStream, connection: &mut Connection, over: &AtomicBool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    for _ in 0..rand::rng().random_range(REQUESTS) {
        connection.ask(&mut stream)?;
        if over.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Asks for a file, and reads the answer up to its body; gives how long that is.
pub(super) fn ask(
    stream: &mut BufReader<TcpStream>,
    file: &str,
    service: IpAddr,
) -> io::Result<usize> {
    let request = format!("GET /{file} HTTP/1.1\r\nHost: {service}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes())?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            let what = "the server closed it in mid-request";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
    }
    if !head.starts_with("HTTP/1.1 200 ") {
        let status = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("answer: {status}")));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is = name.eq_ignore_ascii_case("content-length");
        is.then(|| value.trim().parse().ok())?
    });
    length.ok_or_else(|| io::Error::other("an answer without its length"))
}
