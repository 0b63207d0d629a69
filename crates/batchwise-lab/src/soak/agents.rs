//! The agents: how each is started, what it has at a time, and its lives.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::metrics;
use batchwise_testbed::process::{Process, children, memory};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::segment::{self, LINK as LAN};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{CLIENT_LINK, VANTAGE_LINK, VANTAGE_SERVER_LINK};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::ground::Ground;

/// How long an agent may take to start, …
const START: Duration = Duration::from_secs(30);
/// … and to end.
const END: Duration = Duration::from_secs(10);
/// For so long the answer to a scrape is waited for.
const SCRAPE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Watch,
    Tune,
    Window,
    Passive,
    BurstMark,
    BurstAdmit,
    Profile,
    Balance,
    Decap,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Watch,
        Self::Tune,
        Self::Window,
        Self::Passive,
        Self::BurstMark,
        Self::BurstAdmit,
        Self::Profile,
        Self::Balance,
        Self::Decap,
    ];

    /// Where it serves its metrics, in its host's namespace.
    fn metrics(self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 9_500 + self as u16))
    }

    fn host(self, ground: &Ground) -> &Host {
        let (triangle, segment) = (&ground.triangle, &ground.segment);
        match self {
            Self::Watch => &triangle.server,
            Self::Tune | Self::Window | Self::BurstMark | Self::Profile => &triangle.client,
            Self::Passive | Self::BurstAdmit => &triangle.vantage,
            Self::Balance => &segment.balancer,
            Self::Decap => &segment.servers[0],
        }
    }

    fn command(self, ground: &Ground) -> Command {
        let mut command = Command::new(&ground.command);
        let port = PORT.to_string();
        let words = match self {
            Self::Watch => format!("watch --exchange --port {port}"),
            Self::Tune => format!("tune --budget 0.1 --port {port}"),
            Self::Window => "window".to_owned(),
            Self::Passive => format!("passive --iface {VANTAGE_LINK} --port {port}"),
            Self::BurstMark => format!("burst mark --interface {CLIENT_LINK}"),
            Self::BurstAdmit => format!("burst admit --interface {VANTAGE_SERVER_LINK}"),
            Self::Profile => "profile --hz 97".to_owned(),
            Self::Balance => "balance".to_owned(),
            Self::Decap => format!("decap --iface {LAN} --from {}", segment::balancer().1),
        };
        command
            .args(words.split(' '))
            .args(["--format", "jsonl", "--metrics"]);
        command.arg(self.metrics().to_string());
        match self {
            Self::Watch | Self::Tune | Self::Window => {
                command.arg("--cgroup").arg(self.host(ground).cgroup());
            }
            _ => {}
        }
        match self {
            Self::Tune => {
                command.arg("--log").arg(ground.folder.join("tune.jsonl"));
                command.arg("--hints").arg(ground.hint_socket());
            }
            Self::Window => {
                command.arg("--socket").arg(ground.window_socket());
            }
            Self::Balance => {
                command.arg("--config").arg(ground.configuration());
                command
                    .arg("--log")
                    .arg(ground.folder.join("balance.jsonl"));
                command.env("BATCHWISE_RUN_DIR", &ground.folder);
            }
            _ => {}
        }
        command
    }
}

/// What an agent has at a time, with its guard if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Has {
    /// Which life it is, from 0.
    pub life: u32,
    /// Since when it lives, s.
    pub age_s: f64,
    /// Anonymous memory, bytes.
    pub rss: u64,
    pub descriptors: u64,
    pub maps: u64,
    pub programs: u64,
    /// Since this life began, by its metrics.
    pub lost_events: u64,
}

/// A running agent.
pub struct Agent {
    pub kind: Kind,
    life: u32,
    since: Instant,
    process: Process,
}

impl Agent {
    /// Starts it, and waits until it serves its metrics.
    pub fn start(kind: Kind, ground: &Ground, stop: &Stop) -> Result<Self> {
        let mut agent = Self {
            kind,
            life: 0,
            since: Instant::now(),
            process: launch(kind, ground)?,
        };
        agent.until_ready(ground, stop)?;
        Ok(agent)
    }

    fn until_ready(&mut self, ground: &Ground, stop: &Stop) -> Result<()> {
        let ready = stop.wait_until(START, || {
            self.process.check_alive()?;
            Ok(scrape(self.kind, ground).ok())
        })?;
        match ready {
            Some(_) => Ok(()),
            None => bail!(
                "{:?} does not serve its metrics{}",
                self.kind,
                self.process.quote()
            ),
        }
    }

    /// Ends it by this signal, and starts it again. Fails when it has not ended as it must.
    pub fn restart(&mut self, signal: Signal, ground: &Ground, stop: &Stop) -> Result<()> {
        self.check()?;
        self.signal(signal)?;
        let status = self.process.wait(stop, END)?;
        let ended = match signal {
            Signal::SIGKILL => Ok(()),
            _ => self.expect_success(status),
        };
        self.revive(ground, stop)?;
        ended
    }

    fn expect_success(&self, status: ExitStatus) -> Result<()> {
        let (kind, said) = (self.kind, self.process.quote());
        ensure!(status.success(), "{kind:?} ended with {status}{said}");
        Ok(())
    }

    /// Starts it again after it has ended.
    pub fn revive(&mut self, ground: &Ground, stop: &Stop) -> Result<()> {
        self.process = launch(self.kind, ground)?;
        (self.life, self.since) = (self.life + 1, Instant::now());
        self.until_ready(ground, stop)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.process.pid(), signal).with_context(|| format!("signalling {:?}", self.kind))
    }

    /// Fails when it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.process.check_alive()
    }

    /// Ends it as a user does.
    pub fn finish(mut self, stop: &Stop) -> Result<()> {
        self.check()?;
        self.signal(Signal::SIGTERM)?;
        let status = self.process.wait(stop, END)?;
        self.expect_success(status)
    }

    pub fn has(&self, ground: &Ground) -> Result<Has> {
        let pid = self.process.pid();
        let mut has = Has {
            life: self.life,
            age_s: self.since.elapsed().as_secs_f64(),
            lost_events: scrape(self.kind, ground).map(|text| lost_events(&text))?,
            ..Has::default()
        };
        let (mut maps, mut programs) = (BTreeSet::new(), BTreeSet::new());
        for process in [vec![pid], children(pid)].concat() {
            has.rss += memory(process, "RssAnon")?;
            has.descriptors += descriptors(process, &mut maps, &mut programs)?;
        }
        (has.maps, has.programs) = (maps.len() as u64, programs.len() as u64);
        Ok(has)
    }
}

fn launch(kind: Kind, ground: &Ground) -> Result<Process> {
    let name = format!("{kind:?}");
    let host = kind.host(ground);
    let process = host.spawn(&name, kind.command(ground), Role::Observer);
    let mut process = process.with_context(|| format!("starting {name}"))?;
    // read, so that it never blocks on a full pipe
    process.on_line(drop);
    Ok(process)
}

/// How many descriptors a process has; the maps and programs among them.
fn descriptors(pid: Pid, maps: &mut BTreeSet<u64>, programs: &mut BTreeSet<u64>) -> Result<u64> {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut count = 0;
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {folder}"))? {
        count += 1;
        // closed meanwhile
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let value = |field: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(field))?;
            value.trim().parse::<u64>().ok()
        };
        maps.extend(value("map_id:"));
        programs.extend(value("prog_id:"));
    }
    Ok(count)
}

/// What it says at `/metrics`.
fn scrape(kind: Kind, ground: &Ground) -> Result<String> {
    let text = metrics::scrape(kind.host(ground), kind.metrics(), SCRAPE)?;
    anyhow::ensure!(text.starts_with("HTTP/1.1 200 "), "no metrics: {text}");
    Ok(text)
}

/// The sum of what its metrics call lost events; an agent that cannot lose any says nothing.
fn lost_events(metrics: &str) -> u64 {
    let values = metrics
        .lines()
        .filter(|line| line.starts_with("batchwise_lost_events_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_the_sum_of_their_series() {
        let metrics = "# TYPE batchwise_lost_events counter\n\
                       batchwise_lost_events_total 3\n\
                       batchwise_lost_events_total{kind=\"x\"} 4\n\
                       batchwise_other_total 9\n# EOF\n";
        assert_eq!(lost_events(metrics), 7);
        assert_eq!(lost_events(""), 0);
    }
}
