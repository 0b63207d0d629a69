//! What holds of every agent: it tells systemd how it is, and goes on when nobody reads its output. Needs root.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::{Process, cpu_time};
use batchwise_testbed::stage::scrape::scrape;
use batchwise_testbed::stage::{PATIENCE, Stage, batchwise, eventually};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::{CLIENT_IP, LINK};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

/// As `WatchdogSec=`.
const WATCHDOG: Duration = Duration::from_secs(3);

/// Too few descriptors for most agents.
const FEW: u32 = 16;

/// What systemd is to an agent.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Supervisor {
    fn start(folder: &Path, name: &str) -> Self {
        let path = folder.join(format!("{name}.notify"));
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Self { socket, path }
    }

    /// The next message within this time.
    fn hear(&self, within: Duration) -> Option<String> {
        let timeout = self.socket.set_read_timeout(Some(within));
        timeout.expect("a timeout");
        let mut buffer = [0; 256];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
    }
}

/// An agent at a host, and who looks after it.
struct Agent {
    name: &'static str,
    process: Process,
    supervisor: Supervisor,
}

impl Agent {
    fn start(host: &Host, folder: &Path, name: &'static str, args: &str) -> Self {
        let supervisor = Supervisor::start(folder, name);
        // a shell's limit of descriptors is not the agent's
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nofile={FEW}:"))
            .arg(batchwise().get_program());
        command.args(args.split_whitespace());
        command.env("NOTIFY_SOCKET", &supervisor.path);
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        let process = host.spawn(name, command, Role::Observer);
        Self {
            name,
            process: process.expect("it starts"),
            supervisor,
        }
    }

    fn expect(&mut self, what: &str, within: Duration) {
        let heard = self.supervisor.hear(within);
        let (name, said) = (self.name, self.process.quote());
        self.process.check_alive().expect("it runs");
        assert_eq!(heard.as_deref(), Some(what), "{name}{said}");
    }
}

impl Drop for Agent {
    /// A balancer that is killed leaves what it has pinned.
    fn drop(&mut self) {
        if !self.process.has_ended().unwrap_or(true) {
            self.process.terminate(PATIENCE);
        }
    }
}

const READY: &str = "READY=1";
const ALIVE: &str = "WATCHDOG=1";

/// The balancer of a service at `host` whose only backend is the client, which is checked.
fn balancer(host: &Host, folder: &Path, name: &str) -> PathBuf {
    let route = format!("route add 10.79.9.1/32 via {CLIENT_IP}");
    host.namespace().ip(&route).expect("a way for checks");
    let file = folder.join("balance.toml");
    let text = format!(
        "name = \"{name}\"\ninterfaces = [\"{LINK}\"]\n[[service]]\nname = \"web\"\n\
         address = \"10.79.9.1\"\nport = 80\nhealth = {{ check = \"tcp\", interval = \"200ms\" }}\n\
         [[service.backend]]\nname = \"s1\"\naddress = \"{CLIENT_IP}\"\n"
    );
    fs::write(&file, text).expect("a configuration");
    file
}

#[test]
fn every_agent_tells_its_supervisor_how_it_is_and_goes_on_unread() {
    let stage = Stage::build("agents");
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let slow = format!("qdisc replace dev {LINK} root tbf rate 1mbit burst 3000 limit 90000");
    client.namespace().tc(&slow).expect("a queue");
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().display().to_string();
    let config = balancer(server, folder.path(), "agents");
    let (config, cgroup) = (config.display(), server.cgroup().display());
    let agents = [
        (
            "watch",
            server,
            format!("watch --port 7000 --exchange --cgroup {cgroup} --format jsonl"),
        ),
        (
            "tune",
            server,
            format!("tune --port 7000 --hold on --cgroup {cgroup} --format jsonl"),
        ),
        (
            "passive",
            server,
            format!("passive --iface {LINK} --attach tc --port 7000 --format jsonl"),
        ),
        (
            "balance",
            server,
            format!("balance --config {config} --remove-at-exit --format jsonl"),
        ),
        (
            "window",
            server,
            format!("window --cgroup {cgroup} --socket {path}/window --format jsonl"),
        ),
        ("profile", server, "profile --format jsonl".to_owned()),
        (
            "mark",
            server,
            format!("burst mark --interface {LINK} --format jsonl"),
        ),
        (
            "admit",
            client,
            format!("burst admit --interface {LINK} --format jsonl"),
        ),
        (
            "decap",
            client,
            format!("decap --iface {LINK} --from 10.0.0.1 --format jsonl"),
        ),
    ];
    let mut agents: Vec<_> = (9_001..)
        .zip(agents)
        .map(|(port, (name, host, args))| {
            let metrics = format!("127.0.0.1:{port}");
            let args = format!("{args} --metrics {metrics}");
            let agent = Agent::start(host, folder.path(), name, &args);
            (agent, host, metrics)
        })
        .collect();
    for (agent, ..) in &mut agents {
        agent.expect(READY, PATIENCE);
        agent.process.close_output();
    }
    let left = Instant::now();
    let used = |agent: &Agent| cpu_time(agent.process.pid()).expect("a clock");
    let before: Vec<_> = agents.iter().map(|(agent, ..)| used(agent)).collect();
    for _ in 0..3 {
        for (agent, ..) in &mut agents {
            agent.expect(ALIVE, WATCHDOG);
        }
    }
    for ((agent, host, metrics), before) in agents.iter().zip(before) {
        let heartbeat = || {
            let page = scrape(host, metrics);
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("batchwise_heartbeat_timestamp_seconds "));
            line.map(str::to_owned)
        };
        let first = heartbeat();
        let next = || heartbeat().filter(|now| Some(now) != first.as_ref());
        eventually("the heartbeat", next, || {
            format!("{}{}", agent.name, agent.process.quote())
        });
        // one that nobody reads does not go round and round
        let share = (used(agent) - before).as_secs_f64() / left.elapsed().as_secs_f64();
        assert!(share < 0.5, "{} takes {share} of a CPU", agent.name);
    }
    for (mut agent, ..) in agents {
        kill(agent.process.pid(), Signal::SIGTERM).expect("signalled");
        let mut heard = std::iter::repeat_with(|| agent.supervisor.hear(PATIENCE));
        let last = heard.find(|heard| heard.as_deref() != Some(ALIVE));
        let (last, name) = (last.flatten(), agent.name);
        assert_eq!(last.as_deref(), Some("STOPPING=1"), "{name}");
        let status = agent.process.wait(&Stop::default(), PATIENCE);
        let said = agent.process.quote();
        assert!(status.expect("it ends").success(), "{name}{said}");
        let more = agent.supervisor.hear(Duration::from_millis(1));
        assert_eq!(more, None, "{name}");
    }
}

/// The thread of this name.
fn thread(pid: Pid, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let mut tasks = tasks.map(|task| task.expect("a thread").path());
    let task = tasks
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let task = task.expect("such a thread");
    let id = task.file_name().and_then(|id| id.to_str()?.parse().ok());
    Pid::from_raw(id.expect("a number"))
}

/// Has one thread of another process stand still, or go on.
fn trace(thread: Pid, request: libc::c_uint) {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the requests used here reads or writes memory of ours.
    let done = unsafe { libc::ptrace(request, thread.as_raw(), none, none) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_reload_is_told_with_its_end() {
    let stage = Stage::build("reload");
    let folder = TempDir::new().expect("a folder");
    let config = balancer(&stage.hosts.server, folder.path(), "reload");
    let args = format!("balance --config {} --remove-at-exit", config.display());
    let mut agent = Agent::start(&stage.hosts.server, folder.path(), "balance", &args);
    agent.process.on_line(drop);
    agent.expect(READY, PATIENCE);
    kill(agent.process.pid(), Signal::SIGHUP).expect("signalled");
    let said = || agent.supervisor.hear(PATIENCE);
    let mut said = std::iter::repeat_with(said)
        .flatten()
        .filter(|said| said != ALIVE);
    let reloading = said.next().expect("it is told");
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(said.next().as_deref(), Some(READY));
}

mod long {
    use super::*;

    #[test]
    fn a_balancer_whose_health_checks_hang_is_not_alive_to_its_supervisor() {
        let stage = Stage::build("hung");
        let folder = TempDir::new().expect("a folder");
        let config = balancer(&stage.hosts.server, folder.path(), "hung");
        let args = format!("balance --config {} --remove-at-exit", config.display());
        let mut agent = Agent::start(&stage.hosts.server, folder.path(), "balance", &args);
        agent.process.on_line(drop);
        agent.expect(READY, PATIENCE);
        agent.expect(ALIVE, WATCHDOG);
        for name in ["health", "neighbours"] {
            let hangs = thread(agent.process.pid(), name);
            trace(hangs, libc::PTRACE_SEIZE);
            trace(hangs, libc::PTRACE_INTERRUPT);
            waitpid(hangs, Some(WaitPidFlag::__WALL)).expect("it stops");
            let silent = || agent.supervisor.hear(2 * WATCHDOG).is_none().then_some(());
            eventually("silence", silent, || name.to_owned());
            agent.process.check_alive().expect("it runs");
            trace(hangs, libc::PTRACE_DETACH);
            agent.expect(ALIVE, PATIENCE);
        }
    }
}
