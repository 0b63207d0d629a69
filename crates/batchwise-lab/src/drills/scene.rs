//! Where a drill plays: two hosts, Redis at the server, and this process as the client's applications; and
//! agents whose messages are kept.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::cgroup::Membership;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::{Process, cpu_time, memory};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::sockets::accepted;
use batchwise_testbed::topology::TwoHosts;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::load::Socket;
use super::outcome::Drill;
use crate::Context;
use crate::engine::text::name;

/// How long a condition may take to come true: only a broken product or machine needs it all.
pub const LIMIT: Duration = Duration::from_secs(30);
/// So many sockets of Redis are looked at: each takes a descriptor.
const MOST: usize = 5_000;
/// An agent that is asked to end has done so by then.
pub const END: Duration = Duration::from_secs(5);

/// The fields are dropped in this order.
pub struct Scene<'a> {
    _membership: Membership,
    redis: RedisServer,
    pub hosts: TwoHosts,
    pub context: &'a Context,
    drill: Drill,
}

impl<'a> Scene<'a> {
    pub fn build(context: &'a Context, drill: Drill) -> Result<Self> {
        let hosts = TwoHosts::build("drills")?;
        let redis = RedisServer::start(&hosts.server, &context.stop)?;
        let membership = Membership::join(hosts.client.cgroup())?;
        Ok(Self {
            _membership: membership,
            redis,
            hosts,
            context,
            drill,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.hosts.server_address(PORT)
    }

    pub fn client(&self) -> &Host {
        &self.hosts.client
    }

    pub fn server(&self) -> &Host {
        &self.hosts.server
    }

    /// The server must have survived, too.
    pub fn check(&mut self) -> Result<()> {
        self.redis.check_alive()
    }

    /// Tells Redis something that it answers with `+OK`.
    pub fn tell_redis(&self, command: &str) -> Result<()> {
        let address = self.address();
        let answer = self.client().inside(|| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        })?;
        ensure!(&answer == b"+OK\r\n", "Redis refuses `{command}`");
        Ok(())
    }

    /// A file of this drill beside the results; what an earlier run left is gone.
    pub fn file(&self, what: &str) -> Result<PathBuf> {
        let path = self.context.output.dir();
        let path = path.join(format!("{}-{what}", name(self.drill)));
        File::create(&path).with_context(|| format!("making {}", path.display()))?;
        // an agent may have another folder of work
        fs::canonicalize(&path).with_context(|| format!("finding {}", path.display()))
    }

    /// `batchwise tune` in a host, for the sockets of its cgroup.
    pub fn tune(&self, host: &Host, label: &str, args: &[&str]) -> Result<Agent> {
        let mut command = self.tune_command(host, args);
        command
            .arg("--log")
            .arg(self.file(&format!("{label}.jsonl"))?);
        self.start(host, label, command)
    }

    pub fn tune_command(&self, host: &Host, args: &[&str]) -> Command {
        let mut command = Command::new(&self.context.command);
        command.args(["tune", "--format", "jsonl", "--port", &PORT.to_string()]);
        command.arg("--cgroup").arg(host.cgroup()).args(args);
        command
    }

    /// An agent, attached; its output is read and forgotten.
    pub fn start(&self, host: &Host, label: &str, command: Command) -> Result<Agent> {
        self.start_read(host, label, command, drop)
    }

    /// The same, and each line of its output is given to `each`.
    pub fn start_read(
        &self,
        host: &Host,
        label: &str,
        command: Command,
        each: impl FnMut(String) + Send + 'static,
    ) -> Result<Agent> {
        let mut agent = self.launch(host, label, command)?;
        agent.process.on_line(each);
        let attached = wait_attached(&mut agent.process, label, &self.context.stop);
        attached.with_context(|| format!("an agent said {:?}", agent.messages()))?;
        Ok(agent)
    }

    /// The same without waiting, and with its output unread.
    pub fn launch(&self, host: &Host, label: &str, command: Command) -> Result<Agent> {
        let messages = self.file(&format!("{label}.stderr"))?;
        let process = host.spawn(label, with_messages(&command, &messages), Role::Observer)?;
        Ok(Agent { process, messages })
    }

    /// Copies of the sockets of the server's Redis, which asks for TCP_NODELAY, once there are so many; at most
    /// [`MOST`].
    pub fn of_redis(&self, count: usize) -> Result<Vec<Socket>> {
        let socket = |stream: TcpStream| Socket {
            stream: Arc::new(stream),
            nodelay: true,
        };
        let look = || -> Result<_> {
            let sockets: Vec<_> = accepted(self.server(), PORT, MOST)?
                .into_iter()
                .map(socket)
                .collect();
            // it asks for it just after it has accepted
            let ready = sockets.len() >= count.min(MOST) && super::load::astray(&sockets) == 0;
            Ok(ready.then_some(sockets))
        };
        let found = self.context.stop.wait_until(LIMIT, look)?;
        found.with_context(|| format!("Redis did not accept {count} connections"))
    }

    /// Waits until all these sockets have TCP_NODELAY on or off, whatever their applications asked for.
    pub fn until_held(&self, sockets: &[Socket], nodelay: bool) -> Result<()> {
        let is = |s: &Socket| s.stream.nodelay().ok() == Some(nodelay);
        let look = || Ok(sockets.iter().all(is).then_some(()));
        let held = self.context.stop.wait_until(LIMIT, look)?;
        held.context("the agent does not hold all sockets")
    }
}

/// The same command, its standard error appended to a file. Its process id stays that of what is started.
fn with_messages(command: &Command, file: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>>"$0""#]).arg(file);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}

/// A running agent; killed when dropped.
pub struct Agent {
    pub process: Process,
    messages: PathBuf,
}

impl Agent {
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// What it wrote to its standard error.
    pub fn messages(&self) -> String {
        fs::read_to_string(&self.messages).unwrap_or_default()
    }

    /// Fails when it has ended, quoting what it said.
    pub fn check(&mut self) -> Result<()> {
        let said = self.messages();
        let last = said.lines().last().unwrap_or_default().to_owned();
        let alive = self.process.check_alive();
        alive.with_context(|| format!("an agent ended, saying {last:?}"))
    }

    /// Sends it a signal; the time of that.
    pub fn signal(&self, signal: Signal) -> Result<Instant> {
        kill(self.pid(), signal).context("signalling an agent")?;
        Ok(Instant::now())
    }

    /// Asks it to end and waits for that; how long it took.
    pub fn finish(mut self, scene: &Scene<'_>) -> Result<Duration> {
        self.check()?;
        let asked = self.signal(Signal::SIGTERM)?;
        let status = self.process.wait(&scene.context.stop, END)?;
        ensure!(
            status.success(),
            "it ended with {status}: {}",
            self.messages()
        );
        Ok(asked.elapsed())
    }

    /// Its share of a CPU over this time.
    pub fn cpu_share(&self, scene: &Scene<'_>, time: Duration) -> Result<f64> {
        let (before, begin) = (cpu_time(self.pid())?, Instant::now());
        scene.context.stop.sleep(time)?;
        let used = cpu_time(self.pid())?.saturating_sub(before);
        Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64())
    }

    /// Memory in use, bytes.
    pub fn resident(&self) -> Result<u64> {
        memory(self.pid(), "RssAnon")
    }
}
