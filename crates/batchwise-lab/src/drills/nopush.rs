//! An application that holds back itself what is no full segment: nginx with `tcp_nopush` (TCP_CORK). An agent
//! that holds its sockets at TCP_NODELAY leaves those alone that are corked: it must send as many segments.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::sockets::accepted;
use rustix::net::sockopt::tcp_cork;
use tempfile::TempDir;

use super::outcome::{Drill, Outcome, Traffic};
use super::scene::{LIMIT, Scene};
use crate::Context;

const PORT: u16 = 8081;
/// Clients at a time, each with a connection for each of its requests.
const CLIENTS: usize = 16;
/// An answer, bytes, and how many of them nginx sends a second, after those of the first one: there is a part of a
/// segment that is held back most of the time.
const ANSWER: usize = 400_000;
const RATE: usize = 200_000;
/// Segments may differ by so much: of what is sent again, and of answers in two rounds of writes.
const MORE: f64 = 1.01;
/// Between two looks at the sockets; an answer takes a second and more.
const LOOK: Duration = Duration::from_millis(200);

struct Nginx {
    process: Process,
    _folder: TempDir,
}

impl Nginx {
    fn start(scene: &Scene<'_>) -> Result<Self> {
        let folder = TempDir::with_prefix("bw-nginx-")?;
        fs::write(folder.path().join("answer"), vec![b'a'; ANSWER])?;
        let configuration = format!(
            "daemon off;\nmaster_process off;\nuser root;\npid nginx.pid;\nerror_log stderr warn;\nevents {{}}\nhttp {{\n\
             access_log off;\nsendfile on;\ntcp_nopush on;\ntcp_nodelay off;\nlimit_rate {RATE};\n\
             client_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n\
             server {{ listen 0.0.0.0:{PORT}; root .; }}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), configuration)?;
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "stderr"]);
        let host = scene.server();
        let process = host.spawn("nginx", command, Role::Workload);
        let mut process = process.context("nginx is needed (Debian: apt install nginx-light)")?;
        let look = || {
            process.check_alive()?;
            Ok(host
                .inside(|| Ok(TcpStream::connect(("127.0.0.1", PORT))?))
                .ok())
        };
        let up = scene.context.stop.wait_until(LIMIT, look)?;
        up.context("nginx does not listen")?;
        Ok(Self {
            process,
            _folder: folder,
        })
    }
}

/// Segments with data that the host has sent, without those that were sent again (`TcpExtTCPOrigDataSent`).
fn segments(host: &Host) -> Result<u64> {
    let text = host.inside(|| Ok(fs::read_to_string("/proc/thread-self/net/netstat")?))?;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next(), lines.next());
    let mut pairs = names
        .iter()
        .flat_map(|n| n.split(' '))
        .zip(values.iter().flat_map(|v| v.split(' ')));
    let found = pairs.find(|(name, _)| *name == "TCPOrigDataSent");
    let (_, value) = found.context("the kernel does not count segments")?;
    Ok(value.parse()?)
}

/// The answer's body.
fn ask(to: SocketAddr) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /answer HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n");
    Ok(answer.split_off(head.context("no HTTP")? + 4))
}

/// Has all clients ask so often; segments per answer.
fn segments_per_answer(scene: &Scene<'_>, times: usize, traffic: &mut Traffic) -> Result<f64> {
    let to = SocketAddr::new(scene.address().ip(), PORT);
    let before = segments(scene.server())?;
    let client = || {
        scene
            .client()
            .inside(|| (0..times).map(|_| ask(to)).collect::<Result<Vec<_>>>())
    };
    let answers = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| threads.spawn(client)).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, Result<Vec<_>>>| {
            client.join().map_err(|_| anyhow!("a client panicked"))?
        };
        clients.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    traffic.connections += answers.len() as u64;
    traffic.requests += answers.len() as u64;
    let right = |answer: &&Vec<u8>| answer.len() == ANSWER && answer.iter().all(|b| *b == b'a');
    traffic.wrong_replies += (answers.len() - answers.iter().filter(right).count()) as u64;
    Ok((segments(scene.server())? - before) as f64 / answers.len() as f64)
}

/// The clients of nginx's sockets that are corked at any time until it is over, and of those that have
/// TCP_NODELAY, by their copies.
fn looks_until(
    scene: &Scene<'_>,
    over: &AtomicBool,
) -> Result<(BTreeSet<SocketAddr>, BTreeSet<SocketAddr>)> {
    let (mut corked, mut held) = (BTreeSet::new(), BTreeSet::new());
    while !over.load(Ordering::Relaxed) {
        for socket in accepted(scene.server(), PORT, 2 * CLIENTS)? {
            let Ok(client) = socket.peer_addr() else {
                continue;
            };
            if tcp_cork(&socket)? {
                corked.insert(client);
            }
            if socket.nodelay()? {
                held.insert(client);
            }
        }
        scene.context.stop.sleep(LOOK)?;
    }
    Ok((corked, held))
}

pub fn stays_corked(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::NginxNopush)?;
    let mut nginx = Nginx::start(&scene)?;
    let mut outcome = Outcome::default();
    let times = if context.quick { 3 } else { 10 };
    let without = segments_per_answer(&scene, times, &mut outcome.traffic)?;
    let mut command = Command::new(&context.command);
    command.args([
        "tune",
        "--format",
        "jsonl",
        "--port",
        &PORT.to_string(),
        "--hold",
        "off",
    ]);
    command.arg("--cgroup").arg(scene.server().cgroup());
    command.arg("--log").arg(scene.file("tune.jsonl")?);
    let mut agent = scene.start(scene.server(), "tune", command)?;
    // an idle connection, of which nothing is held back
    let to = SocketAddr::new(scene.address().ip(), PORT);
    let idle = scene.client().inside(|| Ok(TcpStream::connect(to)?))?;
    let held = || {
        let sockets = accepted(scene.server(), PORT, CLIENTS)?;
        Ok(sockets
            .iter()
            .any(|s| s.nodelay().ok() == Some(true))
            .then_some(()))
    };
    let held = context.stop.wait_until(LIMIT, held)?;
    ensure!(held.is_some(), "the agent holds no socket of nginx");
    let over = AtomicBool::new(false);
    let (with, (corked, held)) = std::thread::scope(|threads| {
        let looks = threads.spawn(|| looks_until(&scene, &over));
        let with = segments_per_answer(&scene, times, &mut outcome.traffic);
        over.store(true, Ordering::Relaxed);
        let looks = looks.join().map_err(|_| anyhow!("a thread panicked"))?;
        anyhow::Ok((with?, looks?))
    })?;
    let idle_is_held = held.contains(&idle.local_addr()?);
    outcome.expect(idle_is_held, || "the idle socket was let go".to_owned());
    let (corked, both, asked) = (
        corked.len(),
        corked.intersection(&held).count(),
        times * CLIENTS,
    );
    drop(idle);
    outcome.expect(corked == asked, || {
        format!("only {corked} of {asked} connections were corked")
    });
    outcome.expect(with <= without * MORE, || {
        format!("{with:.1} segments an answer, without the agent {without:.1}")
    });
    outcome.expect_alive(agent.check());
    let ended = agent.finish(&scene);
    outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    nginx.process.check_alive()?;
    scene.check()?;
    outcome.number("corked", corked as f64);
    outcome.number("corked_and_held", both as f64);
    outcome.number("segments_an_answer", with);
    outcome.number("segments_an_answer_without", without);
    outcome.said = format!(
        "nginx with tcp_nopush, its idle socket held at TCP_NODELAY, {corked} of {asked} connections corked and {both} of them \
         held: {with:.2} segments an answer of {ANSWER} bytes, without the agent {without:.2}"
    );
    Ok(outcome)
}
