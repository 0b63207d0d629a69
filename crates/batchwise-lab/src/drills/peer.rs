//! One peer of a thousand that means harm: it sends options of the exchange that say anything.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use batchwise_bpf::holder;
use batchwise_testbed::host::Host;
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};

use super::hostile::{Tried, assault, finish};
use super::load::{Load, MIXED, echo};
use super::outcome::{Drill, Outcome};
use super::scene::Scene;
use crate::Context;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/peer.skel.rs"));
}
use skel::{PeerSkel, PeerSkelBuilder};

/// Connections of others.
const CONNECTIONS: usize = 1_000;
/// The hostile one's port: none that the kernel gives.
const PORT: u16 = 20_000;

/// Attached until dropped.
struct Harm {
    skel: PeerSkel<'static>,
    _link: Link,
}

impl Harm {
    fn attach(host: &Host) -> Result<Self> {
        let mut open = PeerSkelBuilder::default().open(holder())?;
        let bss = open.maps.bss_data.as_deref_mut().context("no .bss")?;
        bss.port = PORT.into();
        let skel = open.load().context("loading the hostile peer's program")?;
        let cgroup = File::open(host.cgroup())?;
        let link = skel.progs.harm.attach_cgroup(cgroup.as_raw_fd());
        Ok(Self {
            _link: link.context("attaching it")?,
            skel,
        })
    }

    fn arm(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.armed = 1;
        }
    }

    /// How many options it has sent.
    fn sent(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| bss.sent)
    }
}

/// A connection from the hostile port, by the calling thread's namespace.
fn hostile(to: SocketAddr) -> Result<TcpStream> {
    let kind = (AddressFamily::Inet, SockType::Stream);
    let socket = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, None)?;
    let own = SocketAddr::from(([0, 0, 0, 0], PORT));
    bind(socket.as_raw_fd(), &SockaddrStorage::from(own))?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub fn one_of_a_thousand(context: &Context) -> Result<Outcome> {
    let scene = Scene::build(context, Drill::HostilePeer)?;
    let mut command = Command::new(&context.command);
    command.args(["watch", "--format", "jsonl", "--exchange", "--port", "6379"]);
    command.arg("--cgroup").arg(scene.server().cgroup());
    let agent = scene.start(scene.server(), "watch", command)?;
    let mut harm = Harm::attach(scene.client())?;
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let stream = scene.client().inside(|| hostile(scene.address()))?;
    let mut outcome = Outcome::default();
    let talk = |over: &AtomicBool| {
        let mut tried = Tried::default();
        while !over.load(Ordering::Relaxed) && echo(&stream, "x", 1).is_ok() {
            tried.tries += 1;
        }
        tried
    };
    let replies = || {
        let begin = std::time::Instant::now();
        load.goes_on(&context.stop)?;
        Ok(begin.elapsed())
    };
    harm.arm();
    assault(&scene, &mut outcome, &agent, talk, replies)?;
    let alive = echo(&stream, "y", 1)?;
    outcome.expect(alive, || {
        "the hostile connection got another reply".to_owned()
    });
    let sent = harm.sent();
    outcome.expect(sent > 1_000, || format!("only {sent} options were sent"));
    outcome.number("options", sent as f64);
    let what = format!("hostile peer, one of 1,001, {sent} options of random content");
    finish(scene, load, agent, outcome, &what)
}
