//! Every socket has its application's own setting back: when the agent ends, when its guard took it for
//! dead, and when an agent before it and its guard ended together.

use std::collections::{HashMap, HashSet};

use anyhow::Context;
use batchwise_bpf::features::in_machines_pids;
use batchwise_bpf::{Owners, Release, Socket};

use super::Agent;
use super::guard::Guard;
use super::lever;
use super::place::{Asked, asked};

impl Agent {
    /// An agent and its guard ended together: what sockets have is not what their applications asked for.
    pub(super) fn give_back_what_was_left(&mut self) -> anyhow::Result<()> {
        match lever::undo_all(self.place.levers()) {
            Ok(0) => {}
            Ok(undone) => tracing::warn!(
                "an agent ended whose guard did not undo all: {undone} routes or namespaces are as before it"
            ),
            Err(error) => tracing::warn!("{error:#}"),
        }
        let left = self.place.left();
        if left.is_empty() {
            return Ok(());
        }
        let socket = |(&cookie, asked): (&u64, &Asked)| Socket {
            cookie,
            netns: 0,
            nodelay: asked.nodelay,
        };
        let sockets: Vec<_> = left.iter().map(socket).collect();
        let all = || sockets.iter().copied();
        let (sensor, guard) = (&mut self.sensor, &mut self.guard);
        let mut alive = || _ = guard.beat();
        let sees_all = in_machines_pids().unwrap_or(false);
        let mut closed: HashSet<u64> = HashSet::new();
        let reach = |owners: &Owners| {
            if sees_all {
                closed.extend(left.keys().filter(|cookie| !owners.have(**cookie)));
            }
            sensor.for_applications(|| owners.reach(all(), true))
        };
        let unreached = self.actuator.give_back(&sockets, reach, &mut alive)?;
        let unreached: HashSet<_> = unreached.iter().map(|s| s.cookie).collect();
        self.tracker.read(&self.sensor.read_long(&mut alive)?, None);
        let seen = self.tracker.connections();
        let seen: HashMap<_, _> = seen.map(|c| (c.last.cookie, c.last.nagle_off)).collect();
        let is_watched = |port: &u16| self.args.ports.iter().any(|ports| ports.contains(port));
        let is_back = |(cookie, asked): (&u64, &Asked)| seen.get(cookie) == Some(&asked.nodelay);
        let reached = |cookie| !unreached.contains(cookie);
        let back = left.iter().filter(|one| reached(one.0) || is_back(*one));
        let back = back.count();
        // what is not seen although its port is watched was closed, too
        left.retain(|cookie, asked| {
            unreached.contains(cookie)
                && !is_back((cookie, asked))
                && !closed.contains(cookie)
                && (seen.contains_key(cookie) || !is_watched(&asked.port))
        });
        if back > 0 {
            tracing::warn!(
                "an agent ended whose guard did not give all back: {back} sockets have their applications' settings again"
            );
        }
        if !left.is_empty() {
            tracing::warn!(
                "{} more are out of reach, or of ports that only the agent before watched: they keep what they have until an agent that reaches them starts",
                left.len()
            );
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        if let Err(error) = self.place.forget() {
            tracing::warn!("{error:#}");
        }
    }

    /// The guard took us for dead, and gave all sockets back (we were stopped, or the machine
    /// stood still), or was killed itself: everything begins anew.
    pub(super) fn start_over(&mut self) -> anyhow::Result<()> {
        let why = match self.give_back()? {
            true => "took this agent for dead",
            false => "was killed",
        };
        tracing::warn!("the guard {why}: all sockets were given back, beginning anew");
        self.sensor.detach();
        for (key, _) in self.services.drain() {
            self.actuator.forget(&key)?;
        }
        self.actuator.resume()?;
        self.guard = Guard::start(&self.actuator, self.args.cgroup.as_deref(), &self.place)?;
        Ok(())
    }

    /// All endings are the guard's: it gives the sockets back when we are gone. If it has been
    /// killed, we do it ourselves. Whether it was there.
    pub(super) fn give_back(&mut self) -> anyhow::Result<bool> {
        // one that gave the sockets back in the middle of a test does not know how that went on
        let late = self.guard.is_gone();
        let done = self.guard.finish();
        if !done || late {
            Release::prepare(self.actuator.guard_fds())
                .and_then(|release| {
                    release.run(self.args.cgroup.as_deref(), || asked(self.place.record()))
                })
                .context("cannot give the sockets back")?;
        }
        self.give_back_the_rest();
        self.levers.undo();
        self.forget();
        Ok(done)
    }

    /// The walk reaches no namespace in which no process is: what is astray behind it goes by its owners.
    fn give_back_the_rest(&mut self) {
        let done = self.sensor.read().and_then(|reading| {
            self.tracker.read(&reading, None);
            let all = self.tracker.connections().map(|c| &c.last);
            let astray = all.filter(|c| c.nagle_off != c.app_nagle_off);
            let astray: Vec<_> = astray
                .map(|c| Socket {
                    cookie: c.cookie,
                    netns: c.netns,
                    nodelay: c.app_nagle_off,
                })
                .collect();
            if !astray.is_empty() {
                self.actuator
                    .owners(&mut || {})?
                    .reach(astray.into_iter(), true);
            }
            Ok(())
        });
        if let Err(error) = done {
            tracing::debug!("sockets that the walk did not reach: {error}");
        }
    }
}
