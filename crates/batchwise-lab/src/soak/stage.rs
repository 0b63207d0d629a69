//! Where agents soak: a triangle with Redis for those that look at sockets and packets, a segment with web
//! servers for the balancer, and the load on both.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_bpf::balance::BPFFS;
use batchwise_testbed::cgroup::Membership;
use batchwise_testbed::host::Role;
use batchwise_testbed::nginx::Nginx;
use batchwise_testbed::process::Process;
use batchwise_testbed::redis::RedisServer;
use batchwise_testbed::segment::{self, LINK as LAN, SERVERS, Segment, SegmentSpec};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::NetworkSettings;
use batchwise_testbed::triangle::{Triangle, TriangleSpec, VANTAGE_SERVER_LINK};

use super::agents::{Agent, Kind};
use super::churn::Churn;
use super::ground::Ground;
use super::lives::Lives;
use crate::Context;
use crate::balance::faults::WHO;
use crate::balance::site::Site;

const TAG: &str = "soak";
/// Room for the outer header of the tunnels.
const MTU: u32 = 1600;
/// The router's queue, which bursts are admitted to.
const QUEUE: &str = "root handle 1: tbf rate 400mbit burst 64kb limit 500kb";
/// How long the balancer may take until it forwards.
const FORWARDS: Duration = Duration::from_secs(30);

/// The fields are dropped in this order.
pub struct Stage {
    pub churn: Churn,
    pub lives: Lives,
    _membership: Membership,
    pub agents: Vec<Agent>,
    pub redis: RedisServer,
    pub site: Site,
    _decapsulators: Vec<Process>,
    pub ground: Ground,
}

impl Stage {
    pub fn build(context: &Context) -> Result<Self> {
        let stop = &context.stop;
        let folder = context.output.dir().join("agents");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let ground = Ground {
            triangle: Triangle::build(TAG, &TriangleSpec::default())?,
            segment: Segment::build(&format!("{TAG}-lb"), SegmentSpec { mtu: MTU })?,
            folder: fs::canonicalize(&folder)?,
            command: context.command.clone(),
        };
        let (triangle, segment) = (&ground.triangle, &ground.segment);
        for client in [&triangle.client, &segment.clients[0]] {
            // a port can be used again after a second
            client
                .namespace()
                .set_sysctl("net/ipv4/tcp_tw_reuse", "1")?;
        }
        let router = triangle.vantage.namespace();
        router.tc(&format!("qdisc replace dev {VANTAGE_SERVER_LINK} {QUEUE}"))?;
        let redis = RedisServer::start(&triangle.server, stop)?;
        let site = Site::start(segment, stop, |name, folder| {
            Ok(fs::write(folder.join(WHO), name)?)
        })?;
        let others = segment.servers.iter().skip(1);
        let decapsulators = others.map(|host| {
            let mut decap = Command::new(&context.command);
            decap.args(["decap", "--iface", LAN, "--format", "jsonl", "--from"]);
            decap.arg(segment::balancer().1.to_string());
            let mut decap = host.spawn("the decapsulator", decap, Role::Observer)?;
            decap.on_line(drop);
            Ok(decap)
        });
        let decapsulators: Result<Vec<_>> = decapsulators.collect();
        let decapsulators = decapsulators?;
        ground.configure([100; SERVERS as usize])?;
        let mut agents = Vec::new();
        for kind in Kind::ALL {
            agents.push(Agent::start(kind, &ground, stop)?);
        }
        await_forwarding(&ground, stop)?;
        let lives = Lives::start(&ground)?;
        // SAFETY: the standard library's lock is around the environment, and no C code here reads it.
        unsafe { std::env::set_var(batchwise_hint::SOCKET_VARIABLE, ground.hint_socket()) };
        let membership = Membership::join(ground.triangle.client.cgroup())?;
        let churn = Churn::start(&ground)?;
        Ok(Self {
            churn,
            lives,
            _membership: membership,
            agents,
            redis,
            site,
            _decapsulators: decapsulators,
            ground,
        })
    }

    pub fn settings(&self) -> Result<NetworkSettings> {
        self.ground.triangle.settings()
    }

    pub fn agent(&mut self, kind: Kind) -> Result<(&mut Agent, &Ground)> {
        let agent = self.agents.iter_mut().find(|agent| agent.kind == kind);
        Ok((agent.with_context(|| format!("no {kind:?}"))?, &self.ground))
    }

    /// Fails when a server has ended.
    pub fn check_servers(&mut self) -> Result<()> {
        self.redis.check_alive()?;
        let servers = &mut self.site.servers;
        servers.iter_mut().try_for_each(Nginx::check_alive)
    }
}

/// Until the balancer's checks have found the servers: a client gets an answer by each address.
fn await_forwarding(ground: &Ground, stop: &Stop) -> Result<()> {
    let answers = || -> Result<_> {
        let asked = super::churn::SERVICES.map(|service| {
            let ask = || Ok(super::churn::page(service).is_ok());
            ground.segment.clients[0].inside(ask).unwrap_or(false)
        });
        Ok(asked.iter().all(|ok| *ok).then_some(()))
    };
    let forwards = stop.wait_until(FORWARDS, answers)?;
    forwards.context("the balancer forwards nothing")
}

/// How many files agents have pinned.
pub fn pins() -> u64 {
    fn below(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => below(&entry.path()),
                _ => 1,
            })
            .sum()
    }
    below(&Path::new(BPFFS).join("batchwise"))
}
