//! What is beside the tuned sockets: network namespaces that go, and many of them.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::host::{Host, Namespace, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::sockets::connected;
use nix::sys::signal::Signal;

use super::load::{Load, MIXED, Socket, astray, given_back};
use super::outcome::{Drill, Outcome};
use super::scene::{LIMIT, Scene};
use crate::Context;

const CONNECTIONS: usize = 16;
const SECOND: Duration = Duration::from_secs(1);
/// The namespace that goes, and its link to the server at both ends.
const GONE: &str = "bw-drills-gone";
const LINK: &str = "bw-gone";

/// A namespace with an application of its own in it, whose sockets are tuned.
struct Guest {
    application: Process,
    namespace: Namespace,
}

impl Guest {
    fn start(scene: &Scene<'_>) -> Result<Self> {
        Namespace::remove(GONE)?;
        let namespace = Namespace::create(GONE.to_owned())?;
        let server = scene.server().namespace();
        server.ip(&format!(
            "link add {LINK} type veth peer name {LINK} netns {GONE}"
        ))?;
        for (end, address) in [(server, "10.80.0.1/24"), (&namespace, "10.80.0.2/24")] {
            end.ip(&format!("addr add {address} dev {LINK}"))?;
            end.ip(&format!("link set {LINK} up"))?;
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", GONE, "redis-benchmark", "-h", "10.80.0.1"]);
        command.args(["-c", "8", "-P", "4", "-t", "set", "-l", "-q"]);
        let host: &Host = scene.client();
        let mut application = host.spawn("redis-benchmark", command, Role::Workload)?;
        application.on_line(drop);
        Ok(Self {
            application,
            namespace,
        })
    }

    /// Waits until all sockets of its application, which does not ask for it, have TCP_NODELAY, or not.
    fn until(scene: &Scene<'_>, nodelay: bool) -> Result<()> {
        let to = SocketAddr::from(([10, 80, 0, 1], PORT));
        let held = || {
            let sockets = connected(scene.client(), to, CONNECTIONS)?;
            let is = |s: &TcpStream| s.nodelay().ok() == Some(nodelay);
            Ok((!sockets.is_empty() && sockets.iter().all(is)).then_some(()))
        };
        let held = scene.context.stop.wait_until(LIMIT, held)?;
        held.with_context(|| format!("the guest's sockets never had TCP_NODELAY {nodelay}"))
    }

    /// Ends the application and deletes the namespace; how long the server's end of the link stayed.
    fn remove(mut self, scene: &Scene<'_>) -> Result<Option<Duration>> {
        self.application.check_alive()?;
        self.application.terminate(SECOND);
        drop(self.application);
        drop(self.namespace);
        let gone = Instant::now();
        let there = || {
            scene
                .server()
                .inside(|| Ok(nix::net::if_::if_nametoindex(LINK).is_ok()))
        };
        let look = || Ok((!there()?).then(|| gone.elapsed()));
        scene.context.stop.wait_until(5 * SECOND, look)
    }
}

pub fn namespace_deleted(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::NamespaceDeleted)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let without = Guest::start(&scene)?;
    Guest::until(&scene, false)?;
    let without = without.remove(&scene)?;
    outcome.expect(without.is_some(), || {
        "its veth stays without an agent, too".to_owned()
    });

    let mut agent = scene.tune(scene.client(), "tune", &["--hold", "off"])?;
    let mut slowest = Duration::ZERO;
    let times = if context.quick { 2 } else { 5 };
    for _ in 0..times {
        let guest = Guest::start(&scene)?;
        Guest::until(&scene, true)?;
        let stayed = guest.remove(&scene)?;
        let stays = stayed.is_none_or(|time| time > SECOND);
        outcome.expect(!stays, || format!("its veth stayed for {stayed:?}"));
        slowest = slowest.max(stayed.unwrap_or(LIMIT));
        outcome.expect_alive(agent.check());
    }
    load.goes_on(&context.stop)?;
    let ended = agent.finish(&scene);
    outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    super::death::expect_given_back(&mut outcome, &load.sockets);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check().context("Redis")?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    outcome.number("namespaces", f64::from(times));
    outcome.number("slowest_ms", ms(slowest));
    outcome.number("without_agent_ms", ms(without.unwrap_or(LIMIT)));
    outcome.said = format!(
        "{times} namespaces deleted under an application whose sockets were held: the veth was gone after {:.0} ms at most, without an agent \
         after {:.0} ms",
        ms(slowest),
        ms(without.unwrap_or(LIMIT))
    );
    let left = Path::new("/run/netns").join(GONE).exists();
    outcome.expect(!left, || format!("{GONE} is still there"));
    Ok(outcome)
}

/// A namespace with a Redis in it, and a connection to that.
struct Room {
    _redis: Process,
    _namespace: Namespace,
}

impl Room {
    fn start(scene: &Scene<'_>, number: usize) -> Result<(Self, Socket)> {
        let name = format!("bw-drills-n{number}");
        Namespace::remove(&name)?;
        let namespace = Namespace::create(name.clone())?;
        namespace.ip("link set lo up")?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "redis-server", "--save", ""]);
        command.args(["--bind", "127.0.0.1", "--port", &PORT.to_string()]);
        let mut redis = scene.client().spawn(&name, command, Role::Workload)?;
        redis.on_line(drop);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let connected = || namespace.inside(|| Ok(Socket::connect(address, MIXED(number)).ok()));
        let socket = scene.context.stop.wait_until(LIMIT, connected)?;
        let socket = socket.context("a Redis does not listen")?;
        let room = Self {
            _redis: redis,
            _namespace: namespace,
        };
        Ok((room, socket))
    }
}

pub fn many_namespaces(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::ManyNamespaces)?;
    let mut outcome = Outcome::default();
    let count = if context.quick { 30 } else { 100 };
    let rooms = (0..count).map(|number| Room::start(&scene, number));
    let (rooms, sockets): (Vec<_>, Vec<_>) = rooms.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let load = Load::over(sockets);
    let mut slowest = Duration::ZERO;
    for hold in ["on", "off"] {
        let mut agent = scene.tune(scene.client(), hold, &["--hold", hold])?;
        scene.until_held(&load.sockets, hold == "off")?;
        load.goes_on(&context.stop)?;
        let death = agent.signal(Signal::SIGKILL)?;
        let back = given_back(|| astray(&load.sockets), death, SECOND);
        outcome.not_given_back += back.astray as u64;
        slowest = slowest.max(back.after.unwrap_or(SECOND));
        agent.process.wait(&context.stop, LIMIT)?;
        load.goes_on(&context.stop)?;
    }
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    drop(rooms);
    scene.check().context("Redis")?;
    let ms = slowest.as_secs_f64() * 1e3;
    outcome.number("namespaces", count as f64);
    outcome.number("slowest_ms", ms);
    outcome.said = format!(
        "an agent killed twice while it held a socket in each of {count} network namespaces: all were back after {ms:.0} ms"
    );
    Ok(outcome)
}
