//! The agent's loop: sense (epochs, health, neighbours, requests), estimate, act on the maps.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::balance::probe::{Attached, Probe};
use batchwise_bpf::balance::{self as bpf, Balancer, Measure, Options};
use batchwise_core::balance::report::Policy;
use batchwise_core::passive::Params;

use super::AgentArgs;
use super::backend::Backend;
use super::config::Config;
use super::control::{Asked, Server};
use super::health::{self, Checker};
use super::journal::Journal;
use super::judge::{self, Terms};
use super::metrics::BalanceMetrics;
use super::nexthop::{Follower, Kernel};
use super::service::Service;
use super::status::Status;
use crate::frame::clock::nanos;
use crate::frame::run;
use crate::frame::ticks::{Ticks, Turn};

mod census;
mod exits;
mod install;
mod interfaces;
mod interval;
mod leaving;
mod request;
mod sense;

/// Neighbours that do not answer within this at the start are taken for down, for now.
const ARP: Duration = Duration::from_secs(1);
/// An epoch of a flow with few packets may last for so many intervals.
const LONGEST_EPOCH: u32 = 4;
/// A flow is no longer measured after so many of its longest epochs without a packet.
const FORGET: u32 = 3;

/// By backends' indices.
type Tallies = BTreeMap<u16, bpf::Tally>;

/// A backend that was taken out and may still have connections. If it is taken back, what checks said
/// of it last still holds.
struct Leaving {
    service: String,
    backend: Backend,
    /// New flows have gone elsewhere since.
    since: Instant,
    /// Its connections have until then.
    until: Instant,
}

/// What is known of interfaces.
#[derive(Default)]
struct Interfaces {
    looked: Option<Instant>,
    /// What was said of those that the program is not attached to.
    said: BTreeMap<String, String>,
}

/// The last census.
#[derive(Clone, Copy, Debug)]
struct LastCensus {
    began: Instant,
    ended: Instant,
}

/// Interfaces that health checks leave by.
struct Exits {
    probe: Probe,
    /// By the interface's index.
    attached: BTreeMap<u32, Attached>,
    /// By service: the index, or why its checks say nothing.
    by_service: BTreeMap<String, Result<u32, String>>,
    looked: Option<Instant>,
    said: Option<Instant>,
}

/// When stations were last asked for their MAC addresses.
#[derive(Default)]
struct StationsAsked(BTreeMap<IpAddr, Instant>);

/// Whether something is due that was last done `at`; then it is done now.
fn due(at: &mut Option<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    let due = at.is_none_or(|at| now - at >= every);
    if due {
        *at = Some(now);
    }
    due
}

/// Everything that the loop knows.
pub struct Agent {
    args: AgentArgs,
    balancer: Balancer,
    config: Config,
    services: Vec<Service>,
    leaving: Vec<Leaving>,
    journal: Journal,
    kernel: Kernel,
    checker: Checker,
    follower: Follower,
    exits: Exits,
    interfaces: Interfaces,
    /// Places of backends by index: service, backend.
    places: BTreeMap<u16, (usize, usize)>,
    tallies: Tallies,
    /// Flows by backends' indices, and when they were last counted.
    census: Vec<bpf::Counted>,
    last_census: Option<LastCensus>,
    asked: StationsAsked,
    /// Empty rings that were spoken of.
    empty: Vec<String>,
    generation: u64,
    config_error: Option<String>,
    taken_over: bool,
    /// A worker of ours does.
    hangs: bool,
    remove: Option<Asked>,
}

fn options(config: &Config) -> Options {
    let epoch_ns = nanos(config.interval);
    let max_ns = epoch_ns * u64::from(LONGEST_EPOCH);
    let measure = Measure {
        params: Params {
            epoch_ns,
            max_ns,
            ..Params::default()
        },
        flows: config.flows,
        forget: Duration::from_nanos(max_ns) * FORGET,
        udp_acks: 0,
    };
    Options {
        name: config.name.clone(),
        interfaces: config.interfaces.clone(),
        flows: config.flows,
        measure: (config.policy != Policy::Static).then_some(measure),
        attach: true,
        pin: true,
    }
}

impl Agent {
    /// Checks the configuration, loads or takes over the programs, and forwards from then on. `refused`:
    /// why that is not what the file says.
    pub fn start(
        args: AgentArgs,
        config: Config,
        refused: Option<String>,
        mut journal: Journal,
    ) -> anyhow::Result<Self> {
        let kernel = Kernel::open()?;
        let name = config.name.clone();
        let pinned = Balancer::pinned(&name);
        let terms = Terms {
            attached: false,
            patience: ARP,
            // what forwards already is better looked after than not
            tolerates: &|_, _| pinned,
            tolerates_gone: &|interface| Balancer::pinned_at(&name, interface),
        };
        let checked = judge::check(&kernel, config, &terms, || Ok(()))?;
        let config = checked.config.clone();
        let balancer = Balancer::start(options(&config)).with_context(|| {
            let interfaces = config.interfaces.join(", ");
            format!("cannot balance at {interfaces} (`batchwise doctor` checks what is needed)")
        })?;
        let taken_over = balancer.taken_over();
        if taken_over {
            let detail = format!("the pinned maps of {:?} were taken over", config.name);
            journal.event("takeover", &[], detail);
        }
        let probe = Probe::load(&balancer).context("cannot send health checks")?;
        let probed = probe.probed()?;
        let checker = health::start(move |index| probed.syns(index))?;
        let mut agent = Self {
            args,
            balancer,
            config,
            services: Vec::new(),
            leaving: Vec::new(),
            journal,
            kernel,
            checker,
            follower: Follower::start()?,
            exits: Exits::new(probe),
            interfaces: Interfaces::default(),
            places: BTreeMap::new(),
            tallies: Tallies::new(),
            census: Vec::new(),
            last_census: None,
            asked: StationsAsked::default(),
            empty: Vec::new(),
            generation: 1,
            config_error: None,
            taken_over,
            hangs: false,
            remove: None,
        };
        let ready = agent.prepare(checked);
        let installed = ready.and_then(|ready| agent.install(ready));
        if installed.is_err() && !taken_over {
            // the error is what matters; what cannot be removed now is taken over by the next start
            drop(Balancer::remove(&agent.config.name));
        }
        installed?;
        match refused {
            Some(why) => {
                agent.journal.warn("config_error", &[], &why);
                agent.config_error = Some(why);
            }
            None => agent.keep(),
        }
        Ok(agent)
    }

    /// Keeps the configuration that has come into force.
    fn keep(&mut self) {
        if let Err(error) = self.args.keep(&self.config) {
            self.journal.warn("config_kept", &[], &format!("{error:#}"));
        }
    }

    /// Backends are checked and neighbours are followed. If not, whoever started us is to start us again.
    fn is_well(&mut self) -> bool {
        let well = self.checker.is_well() && self.follower.is_well();
        if !well && !self.hangs {
            tracing::warn!(
                "health checks or the search for neighbours hang: what they said last stays in force"
            );
        }
        self.hangs = !well;
        well
    }

    /// Nothing is to stay when it has ended, and who wanted that and waits for it to be done.
    pub fn is_to_go(&mut self) -> (bool, Option<Asked>) {
        let asked = self.remove.take();
        (asked.is_some() || self.args.remove_at_exit, asked)
    }
}

/// The agent in its loop, with whoever asks something of it.
pub struct Asking<'a> {
    pub agent: Agent,
    pub server: &'a Server,
    pub hangup: Arc<AtomicBool>,
}

impl run::Agent for Asking<'_> {
    type View = Status;
    type Metrics = BalanceMetrics;

    /// Events wait in a buffer of limited size, and health does not wait for the interval's end.
    fn due(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn look(&mut self, _turn: Turn, ticks: &mut Ticks) -> anyhow::Result<()> {
        let agent = &mut self.agent;
        ticks.set_well(agent.is_well());
        agent.take_epochs()?;
        agent.sense()?;
        agent.follow_interfaces()?;
        if self.hangup.swap(false, Ordering::Relaxed) {
            // what is wrong has been said
            let _ = agent.reload();
        }
        for asked in self.server.requests() {
            agent.answer(asked)?;
        }
        ticks.set_interval(agent.config.interval);
        if agent.remove.is_some() {
            ticks.stop();
        }
        Ok(())
    }

    fn close(&mut self, _turn: Turn) -> anyhow::Result<Option<Status>> {
        self.agent.interval(Instant::now()).map(Some)
    }

    fn serve(&mut self, status: &Status, metrics: &mut BalanceMetrics) {
        metrics.interval(status, self.agent.journal.dropped());
    }
}
