//! Another sock_ops program in the same cgroup, which was there before an agent that exchanges.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use batchwise_bpf::holder;
use batchwise_testbed::host::Host;
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use super::load::{Load, MIXED, echo};
use super::outcome::{Drill, Outcome};
use super::scene::{LIMIT, Scene};
use crate::Context;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/callbacks.skel.rs"));
}
use skel::{CallbacksSkel, CallbacksSkelBuilder};

const CONNECTIONS: usize = 32;
/// Connections of each kind that are looked at, and requests on each.
const LOOKED_AT: usize = 20;
const REQUESTS: usize = 20;

/// Attached until dropped.
struct Other {
    skel: CallbacksSkel<'static>,
    _link: Link,
}

impl Other {
    fn attach(host: &Host) -> Result<Self> {
        let open = CallbacksSkelBuilder::default().open(holder())?;
        let skel = open.load().context("loading another sock_ops program")?;
        let cgroup = File::open(host.cgroup())?;
        let program = &skel.progs.count;
        let link = program.attach_cgroup(cgroup.as_raw_fd());
        Ok(Self {
            _link: link.context("attaching it")?,
            skel,
        })
    }

    /// How often it was called so far.
    fn called(&self) -> u64 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.called)
    }
}

/// Echoes what comes, like Redis does, at a port that no agent watches: until its listener is dropped.
fn serve(host: &Host) -> Result<SocketAddr> {
    let listener = host.inside(|| Ok(TcpListener::bind("10.77.0.1:0")?))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2 * LOOKED_AT).flatten() {
            std::thread::spawn(move || {
                let Ok(mut to) = stream.try_clone() else {
                    return;
                };
                let mut from = stream;
                // its end is the client's
                let _ = std::io::copy(&mut from, &mut to);
            });
        }
    });
    Ok(address)
}

/// How often the other program is called for some new connections.
fn calls(scene: &Scene<'_>, other: &Other, to: SocketAddr, redis: bool) -> Result<u64> {
    let before = other.called();
    scene.client().inside(|| {
        for number in 0..LOOKED_AT {
            let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
            stream.set_read_timeout(Some(LIMIT))?;
            for request in 0..REQUESTS {
                if redis {
                    echo(&stream, &format!("{number}-{request}"), 1)?;
                } else {
                    stream.write_all(b"ping")?;
                    stream.read_exact(&mut [0; 4])?;
                }
            }
        }
        Ok(())
    })?;
    Ok(other.called() - before)
}

pub fn survive(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::OtherSockOps)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let other = Other::attach(scene.client())?;
    let foreign = serve(scene.server())?;
    let of_each = |other: &Other| -> Result<[u64; 2]> {
        Ok([
            calls(&scene, other, foreign, false)?,
            calls(&scene, other, scene.address(), true)?,
        ])
    };
    let without = of_each(&other)?;
    let mut command = Command::new(&context.command);
    command.args(["watch", "--format", "jsonl", "--exchange", "--port", "6379"]);
    command.arg("--cgroup").arg(scene.client().cgroup());
    let mut agent = scene.start(scene.client(), "watch", command)?;
    let with = of_each(&other)?;
    for (index, whose) in ["of another port", "of the watched port"]
        .iter()
        .enumerate()
    {
        let (without, with) = (without[index], with[index]);
        outcome.expect(2 * with > without, || {
            format!(
                "of connections {whose} it was called {with} times, without the agent {without}"
            )
        });
    }
    outcome.expect_alive(agent.check());
    let ended = agent.finish(&scene);
    outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    outcome.number("calls_of_another_port_without", without[0] as f64);
    outcome.number("calls_of_another_port", with[0] as f64);
    outcome.number("calls_of_the_watched_port_without", without[1] as f64);
    outcome.number("calls_of_the_watched_port", with[1] as f64);
    outcome.said = format!(
        "another sock_ops program asked to be called for each segment: of {LOOKED_AT} connections to another port it was \
         called {} times (without an agent {}), of those to the watched port {} ({})",
        with[0], without[0], with[1], without[1]
    );
    Ok(outcome)
}
