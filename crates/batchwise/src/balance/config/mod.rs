//! The configuration of `batchwise balance`: what a file says, checked; every error names file,
//! line and remedy.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use batchwise_bpf::balance::{Method, Protocol};
use batchwise_core::balance::report::Policy;

mod check;
mod health;
pub mod kept;
#[cfg(test)]
pub mod keys;
mod raw;
#[cfg(test)]
mod tests;
mod value;

/// Most services, as the kernel's table of rings has room.
pub const MOST_SERVICES: usize = 512;
/// Most backends of all services together; index 0 is nobody.
pub const MOST_BACKENDS: usize = 4095;

/// Intervals that can be kept: epochs are read so often, and decisions that come later are none.
pub const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(60);

/// How a backend's health is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not at all.
    None,
    /// It accepts a connection.
    Tcp,
    /// It answers a GET with a status in the range.
    Http {
        path: String,
        host: String,
        /// Statuses that are health.
        status: RangeInclusive<u16>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub kind: Kind,
    /// The TCP port of the service's address that is asked.
    pub port: u16,
    /// Between two checks, give or take 10 %.
    pub interval: Duration,
    /// A check that takes longer has failed.
    pub timeout: Duration,
    /// Checks in a row that must pass before it is up again.
    pub rise: u32,
    /// Checks in a row that must fail before it is down.
    pub fall: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What it is called; decides which slots are its own.
    pub name: String,
    pub address: IpAddr,
    /// Its share, against the others' of the service; 0 drains.
    pub weight: u32,
    pub line: usize,
}

/// A virtual service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// Where clients find it.
    pub address: IpAddr,
    /// 0: all.
    pub port: u16,
    pub protocol: Protocol,
    /// How packets reach its backends.
    pub method: Method,
    /// A client's connections all go to one backend.
    pub by_client: bool,
    /// Whether a new connection goes to the less busy of two backends, where the file says it; see
    /// [`Service::two_choices`].
    pub choices: Option<bool>,
    /// Outer source of packets to IPv4 backends: a prefix and its length; the rest of the address
    /// tells flows apart.
    pub tunnel_source: Option<(Ipv4Addr, u8)>,
    /// Packets too big for the way to a backend are answered with ICMP instead of refused at start.
    pub allow_small_mtu: bool,
    pub check: Check,
    /// The servers; none: packets are dropped.
    pub backends: Vec<Backend>,
    pub line: usize,
}

impl Service {
    /// Whether a new connection goes to the less busy of two backends. Where a client's connections
    /// belong together it must not, as a choice would part them.
    pub fn two_choices(&self, policy: Policy) -> bool {
        let together = self.by_client || self.port == 0;
        let default = policy == Policy::Latency && !together;
        self.choices.unwrap_or(default)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub file: PathBuf,
    /// Names the pins and the control socket.
    pub name: String,
    /// Where clients' packets arrive.
    pub interfaces: Vec<String>,
    pub interfaces_line: usize,
    pub policy: Policy,
    pub interval: Duration,
    /// Connections for which there is room.
    pub flows: u32,
    /// A backend that was taken out keeps its connections for at most this long.
    pub drain_timeout: Duration,
    /// The services, in the file's order.
    pub services: Vec<Service>,
}

/// Whether a balancer can have this name: files are named by it.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=32).contains(&text.len()) && text.chars().all(fits)
}

/// What is wrong at a line of a file, and what to do.
pub fn wrong(file: &Path, line: usize, what: impl fmt::Display) -> anyhow::Error {
    anyhow!("{}:{line}: {what}", file.display())
}

/// More than any configuration has, bytes.
const LONGEST: u64 = 1 << 20;

/// What is in a file. Whoever may write it must not be able to have us wait, or read for ever.
fn text_of(file: &Path) -> io::Result<String> {
    // a FIFO would be waited for
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)?;
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !opened.metadata()?.is_file() {
        return refused("it is no regular file");
    }
    let mut text = String::new();
    opened.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 {
        0..=LONGEST => Ok(text),
        _ => refused("it is longer than 1 MiB"),
    }
}

impl Config {
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = text_of(file).map_err(|error| {
            anyhow!(
                "{}: cannot be read ({error}); give the path of a readable TOML file with --config",
                file.display()
            )
        })?;
        Self::parse(file, &text)
    }

    pub fn parse(file: &Path, text: &str) -> anyhow::Result<Self> {
        let lines = Lines { file, text };
        let raw = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            lines.wrong(&span, error.message().trim_end())
        })?;
        check::config(&lines, raw)
    }
}

/// What holds, but may not be what is meant.
#[derive(Debug)]
pub struct Doubt {
    pub service: String,
    pub what: String,
}

impl Config {
    /// What an operator should know of a file that holds.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for service in &self.services {
            let name = &service.name;
            let mut doubt = |what: String| {
                let what = wrong(&self.file, service.line, format!("service {name} {what}"));
                doubts.push(Doubt {
                    service: name.clone(),
                    what: what.to_string(),
                });
            };
            if service.backends.is_empty() {
                doubt("has no backend: its packets are dropped".to_owned());
            }
            // one alone has nobody to take traffic from
            if self.policy != Policy::Latency || service.backends.len() < 2 {
                continue;
            }
            if service.by_client {
                doubt(
                    "has affinity = \"client\" and policy = \"latency\": each change of weights moves \
                     clients to other backends; use policy = \"static\" or \"observe\""
                        .to_owned(),
                );
            }
            let check = match service.check.kind {
                Kind::Http { .. } => None,
                Kind::Tcp => Some("tcp"),
                Kind::None => Some("none"),
            };
            if let Some(check) = check {
                doubt(format!(
                    "has policy = \"latency\" and check = \"{check}\": nothing vouches for answers: a \
                     server that fails fast is never given more than its share, and cannot be told from \
                     one that became fast; use check = \"http\""
                ));
            }
        }
        doubts
    }
}

/// From places in the text to lines.
struct Lines<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        before.filter(|b| **b == b'\n').count() + 1
    }

    fn wrong(&self, span: &Range<usize>, what: impl fmt::Display) -> anyhow::Error {
        wrong(self.file, self.line(span), what)
    }
}
