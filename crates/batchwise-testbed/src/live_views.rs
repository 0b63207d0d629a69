//! Every subcommand with a live view, each at a terminal of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::process::cpu_time;
use crate::stop::{POLL, Stop};
use crate::terminal::{AtTerminal, Hangup};
use crate::topology::{CLIENT_IP, LINK, TwoHosts};

/// A condition comes true within this time.
const LIMIT: Duration = Duration::from_secs(30);
/// Of the balancer.
const NAME: &str = "live-views";

/// A subcommand that has drawn its view.
pub struct LiveView {
    /// What messages call it.
    pub name: &'static str,
    /// The command.
    pub at: AtTerminal,
}

/// How a subcommand ended after its terminal was gone.
pub struct Ended {
    /// After this time.
    pub after: Duration,
    /// With this much CPU time of its own.
    pub cpu: Duration,
}

/// Starts them all; `folder` is theirs. A later one may need one before it.
pub fn start(
    batchwise: &Path,
    hosts: &TwoHosts,
    folder: &Path,
    hangup: Hangup,
    stop: &Stop,
) -> Result<Vec<LiveView>> {
    let (server, client) = (&hosts.server, &hosts.client);
    let slow = format!("qdisc replace dev {LINK} root tbf rate 100mbit burst 30000 limit 900000");
    client.namespace().tc(&slow)?;
    let route = format!("route replace 10.79.9.1/32 via {CLIENT_IP}");
    server.namespace().ip(&route)?;
    let config = folder.join("balance.toml");
    let text = format!(
        "name = \"{NAME}\"\ninterfaces = [\"{LINK}\"]\n[[service]]\nname = \"web\"\naddress = \"10.79.9.1\"\n\
         port = 80\n[[service.backend]]\nname = \"s1\"\naddress = \"{CLIENT_IP}\"\n"
    );
    fs::write(&config, text).context("writing a configuration")?;
    let (config, socket) = (config.display(), folder.join("window"));
    let socket = socket.display();
    let [cgroup, other] = [server, client].map(|host| host.cgroup().display());
    let commands = [
        (
            "watch",
            server,
            format!("watch --port 7000 --cgroup {cgroup}"),
        ),
        (
            "exchange",
            client,
            format!("watch --port 7000 --exchange --cgroup {other}"),
        ),
        (
            "passive",
            server,
            format!("passive --iface {LINK} --attach tc --port 7000"),
        ),
        (
            "window",
            server,
            format!("window --cgroup {cgroup} --socket {socket}"),
        ),
        (
            "profile",
            server,
            "profile --hz 97 --duration 1h".to_owned(),
        ),
        ("mark", server, format!("burst mark --interface {LINK}")),
        ("admit", client, format!("burst admit --interface {LINK}")),
        (
            "balance",
            server,
            format!("balance --config {config} --remove-at-exit"),
        ),
        ("status", server, format!("balance status --name {NAME}")),
    ];
    let mut views = Vec::new();
    for (name, host, args) in commands {
        let mut command = Command::new(batchwise);
        command.args(args.split(' ')).args(["--format", "live"]);
        let at = host.inside(|| AtTerminal::start(name, command, hangup))?;
        let mut view = LiveView { name, at };
        view.until_drawn(stop)?;
        views.push(view);
    }
    Ok(views)
}

impl LiveView {
    /// Waits for its first frame.
    fn until_drawn(&mut self, stop: &Stop) -> Result<()> {
        let look = || {
            let drawn = self.at.drawn()?;
            let ended = self.at.process.has_ended()?;
            ensure!(
                !ended,
                "{} ended, and the terminal has {drawn:?}",
                self.name
            );
            Ok(drawn.contains("batchwise ").then_some(()))
        };
        let drawn = stop.wait_until(LIMIT, look)?;
        drawn.with_context(|| format!("{} draws nothing", self.name))
    }

    /// Takes its terminal away, and waits until it has ended in order.
    pub fn end_of_terminal(mut self, stop: &Stop) -> Result<Ended> {
        let name = self.name;
        let pid = self.at.process.pid();
        let used = || cpu_time(pid).unwrap_or_default();
        let (begin, before) = (Instant::now(), used());
        self.at.close();
        let mut after = before;
        let look = || {
            // of one that has ended there is no more to be had than before
            after = after.max(used());
            Ok(self.at.process.has_ended()?.then_some(()))
        };
        let ended = stop.wait_until(LIMIT, look)?;
        let took = begin.elapsed();
        let cpu = after.saturating_sub(before);
        ended.with_context(|| {
            format!("{name} goes on for {took:?} without its terminal, with {cpu:?} of CPU time")
        })?;
        let status = self.at.process.wait(stop, POLL)?;
        ensure!(
            status.success(),
            "{name} ended with {status} when its terminal was gone"
        );
        Ok(Ended { after: took, cpu })
    }
}
