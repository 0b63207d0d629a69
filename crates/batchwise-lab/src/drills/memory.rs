//! The memory limit of an agent's cgroup is reached, and the kernel kills.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::cgroup;
use batchwise_testbed::host::Role;
use batchwise_testbed::process::children;
use nix::sys::signal::{Signal, kill};

use super::load::{Load, MIXED, astray, given_back};
use super::outcome::{Drill, Outcome};
use super::scene::{LIMIT, Scene};
use crate::Context;

const CONNECTIONS: usize = 64;
const SECOND: Duration = Duration::from_secs(1);
/// More than agent and guard have, and less than what the other process wants.
const BYTES: u64 = 96 << 20;
const WANTED: u64 = 256 << 20;

/// A cgroup of the memory controller, as cgroup v1 or v2 has it; removed when dropped.
struct Limited {
    folder: PathBuf,
    /// The file that counts whom the kernel has killed.
    kills: &'static str,
}

impl Limited {
    fn create() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let v1 = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let is = fields.get(2) == Some(&"cgroup")
                && fields.get(3)?.split(',').any(|option| option == "memory");
            is.then(|| PathBuf::from(fields[1]))
        });
        let (root, limit, kills) = match v1 {
            Some(root) => (root, "memory.limit_in_bytes", "memory.oom_control"),
            None => {
                let root = cgroup::mount_point()?;
                let enabled = fs::write(root.join("cgroup.subtree_control"), "+memory");
                enabled.context("no memory controller")?;
                (root, "memory.max", "memory.events")
            }
        };
        let folder = root.join("bw-drills-memory");
        if !folder.exists() {
            fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let made = Self { folder, kills };
        fs::write(made.folder.join(limit), BYTES.to_string()).context("limiting memory")?;
        Ok(made)
    }

    fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// How many processes the kernel has killed here for memory.
    fn kills(&self) -> Result<u64> {
        let text = fs::read_to_string(self.folder.join(self.kills))?;
        let count = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        Ok(count.context("the kernel does not count kills")?.parse()?)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Err(error) = cgroup::remove_tree(&self.folder) {
            tracing::warn!("{error:#}");
        }
    }
}

pub fn limit(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::MemoryLimit)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let limited = Limited::create()?;
    let mut agent = scene.tune(scene.client(), "tune", &["--hold", "off"])?;
    scene.until_held(&load.sockets, true)?;
    let guards = children(agent.pid());
    for pid in [&guards[..], &[agent.pid()]].concat() {
        fs::write(limited.procs(), pid.to_string()).context("moving the agent")?;
    }
    // it shall be what the kernel chooses, whatever it needs itself
    let kills = limited.kills()?;
    let score = format!("/proc/{}/oom_score_adj", agent.pid());
    fs::write(score, "1000").context("offering the agent")?;
    let script = format!(
        "echo $$ > {} && head -c {WANTED} /dev/zero | tail -c {WANTED} | wc -c",
        limited.procs().display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let other = scene
        .client()
        .spawn("what wants memory", command, Role::Observer)?;
    let died = || Ok(agent.process.has_ended()?.then(Instant::now));
    let Some(death) = context.stop.wait_until(LIMIT, died)? else {
        bail!("the kernel did not kill the agent although its cgroup is full");
    };
    let sockets = &load.sockets;
    let back = given_back(|| astray(sockets), death, SECOND);
    drop(other);
    let status = agent.process.wait(&context.stop, LIMIT)?;
    let kills = limited.kills()? - kills;
    outcome.expect(status.signal() == Some(9) && kills > 0, || {
        format!("the agent ended with {status}, and the kernel killed {kills} for memory")
    });
    outcome.not_given_back += back.astray as u64;
    load.goes_on(&context.stop)?;
    let next = scene.tune(scene.client(), "next", &["--hold", "off"])?;
    scene.until_held(sockets, true)?;
    let ended = next.finish(&scene);
    outcome.expect(ended.is_ok(), || {
        format!("the next: {:#}", ended.unwrap_err())
    });
    super::death::expect_given_back(&mut outcome, sockets);
    for guard in guards {
        let gone = || Ok(kill(guard, None::<Signal>).is_err().then_some(()));
        let gone = context.stop.wait_until(LIMIT, gone)?;
        outcome.expect(gone.is_some(), || "its guard stays".to_owned());
    }
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    let ms = back.after.unwrap_or(SECOND).as_secs_f64() * 1e3;
    outcome.number("given_back_ms", ms);
    outcome.number("oom_kills", kills as f64);
    outcome.said = format!(
        "the kernel killed the agent for memory: {} sockets were back {ms:.0} ms after it was seen dead; the next agent \
         took over",
        CONNECTIONS
    );
    Ok(outcome)
}
