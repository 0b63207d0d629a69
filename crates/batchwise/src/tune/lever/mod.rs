//! How delayed acknowledgments are cut short where a socket's own timer is not short enough: by a route to the other
//! end, or in a whole network namespace. What is set is written down first: whoever ends last undoes it. What someone
//! else has changed since is left alone.

mod route;
mod threshold;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchwise_bpf::run_in_namespace;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::Lever;
use serde::{Deserialize, Serialize};

use super::place::boot_id;
use crate::frame::whole::replace;
use route::HostRoute;

/// Between looks whether someone else has changed what is set.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What can be set, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Route { netns: u32, to: IpAddr },
    Namespace { netns: u32 },
}

/// What it takes to undo it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Change {
    Route { netns: u32, to: IpAddr, table: u32 },
    Namespace { netns: u32, before: u8 },
}

/// What is set for all services.
pub struct Levers {
    /// The coarsest that may be used.
    scope: Lever,
    cgroup: Option<PathBuf>,
    record: PathBuf,
    set: HashMap<Target, Set>,
    /// What could not be set, or was changed by someone else.
    left_alone: BTreeSet<Target>,
    checked: Instant,
}

struct Set {
    change: Change,
    /// It follows the one that it is a copy of.
    route: Option<HostRoute>,
}

impl Levers {
    /// `record`: where it is written down.
    pub fn new(scope: Lever, cgroup: Option<&Path>, record: &Path) -> Self {
        Self {
            scope,
            cgroup: cgroup.map(Path::to_owned),
            record: record.to_owned(),
            set: HashMap::new(),
            left_alone: BTreeSet::new(),
            checked: Instant::now(),
        }
    }

    /// Has exactly these services' acknowledgments cut short, each at the finest that goes beyond its sockets.
    pub fn pull<'a>(&mut self, services: impl Iterator<Item = &'a ServiceKey>) {
        let wanted: Vec<_> = services.map(|service| self.targets(service)).collect();
        let mut kept = BTreeSet::new();
        for targets in wanted {
            kept.extend(targets.into_iter().find(|target| self.is_set(*target)));
        }
        let dropped: Vec<_> = self
            .set
            .extract_if(|target, _| !kept.contains(target))
            .collect();
        if !dropped.is_empty() {
            for (target, set) in dropped {
                self.undo(target, &set.change);
            }
            self.write();
        }
        if self.checked.elapsed() >= CHECK_EVERY {
            self.checked = Instant::now();
            self.check();
        }
    }

    /// All was undone, by whoever did that.
    pub fn forget(&mut self) {
        self.set.clear();
    }

    /// What cuts a service's acknowledgments short while that is in force.
    pub fn of(&self, service: &ServiceKey) -> Lever {
        let set = self
            .targets(service)
            .into_iter()
            .find(|target| self.set.contains_key(target));
        match set {
            Some(Target::Route { .. }) => Lever::Route,
            Some(Target::Namespace { .. }) => Lever::Namespace,
            None => Lever::Socket,
        }
    }

    /// The finest first. A server's other ends are many: it has no route to them.
    fn targets(&self, service: &ServiceKey) -> Vec<Target> {
        let netns = service.netns;
        let to = service.server.ip().to_canonical();
        let route = (service.side == Side::Client && self.scope >= Lever::Route)
            .then_some(Target::Route { netns, to });
        let namespace = (self.scope >= Lever::Namespace).then_some(Target::Namespace { netns });
        route.into_iter().chain(namespace).collect()
    }

    /// Whether it is, after it was tried if it was not.
    fn is_set(&mut self, target: Target) -> bool {
        if self.set.contains_key(&target) {
            return true;
        }
        if self.left_alone.contains(&target) {
            return false;
        }
        let done = self.set(target);
        if let Err(error) = &done {
            tracing::warn!("{target}: {error}; acknowledgments are cut short without it");
            self.left_alone.insert(target);
        }
        done.is_ok()
    }

    fn set(&mut self, target: Target) -> io::Result<()> {
        let set = match target {
            Target::Route { netns, to } => {
                let route = self.within(netns, || HostRoute::prepare(to))?;
                let table = route.table();
                Set {
                    change: Change::Route { netns, to, table },
                    route: Some(route),
                }
            }
            Target::Namespace { netns } => {
                let before = self.within(netns, threshold::get)?;
                Set {
                    change: Change::Namespace { netns, before },
                    route: None,
                }
            }
        };
        self.set.insert(target, set);
        let done = self.try_write().and_then(|()| match target {
            Target::Route { .. } => self
                .set
                .get_mut(&target)
                .and_then(|set| set.route.as_mut())
                .map_or(Ok(()), HostRoute::make),
            Target::Namespace { netns } => self.within(netns, threshold::raise),
        });
        if done.is_err() {
            self.set.remove(&target);
            self.write();
        }
        done
    }

    fn undo(&mut self, target: Target, change: &Change) {
        if let Err(error) = undo(change, self.cgroup.as_deref()) {
            tracing::warn!("{target}: {error}; it stays as it is");
            self.left_alone.insert(target);
        }
    }

    /// What someone else has changed is theirs; a namespace that is gone needs nothing, and is not kept by us.
    fn check(&mut self) {
        let cgroup = self.cgroup.as_deref();
        let is_ours = |target: &Target, set: &mut Set| match (target, &mut set.route) {
            (Target::Namespace { netns }, _) => {
                run_in_namespace(*netns, cgroup, threshold::is_raised)
            }
            (Target::Route { netns, .. }, route) => {
                run_in_namespace(*netns, cgroup, || Ok(()))?;
                route.as_mut().map_or(Ok(false), HostRoute::follow)
            }
        };
        let mut checked: Vec<_> = self
            .set
            .iter_mut()
            .map(|(target, set)| (*target, is_ours(target, set)))
            .collect();
        checked.retain(|(_, is_ours)| !matches!(is_ours, Ok(true)));
        for (target, is_ours) in &checked {
            self.set.remove(target);
            match is_ours {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => tracing::warn!("{target}: {error}; it is left alone from now on"),
                Ok(_) => tracing::warn!(
                    "{target} was changed by someone else: it is left alone from now on"
                ),
            }
            self.left_alone.insert(*target);
        }
        if !checked.is_empty() {
            self.write();
        }
    }

    fn within<T: Send>(
        &self,
        netns: u32,
        f: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        run_in_namespace(netns, self.cgroup.as_deref(), f)
    }

    fn write(&self) {
        if let Err(error) = self.try_write() {
            tracing::warn!("{error}");
        }
    }

    fn try_write(&self) -> io::Result<()> {
        let changes: Vec<_> = self.set.values().map(|set| set.change).collect();
        if changes.is_empty() {
            // one that is not there was never needed
            let _ = fs::remove_file(&self.record);
            return Ok(());
        }
        let text = serde_json::to_string(&(boot_id(), changes))?;
        let named =
            |error| io::Error::other(format!("cannot write {}: {error}", self.record.display()));
        replace(&self.record, &text).map_err(named)
    }
}

/// Undoes what is written down there, and says how many that were: it was set in this boot by an agent that is gone.
pub fn undo_all(record: &Path, cgroup: Option<&Path>) -> usize {
    let text = fs::read_to_string(record).unwrap_or_default();
    let Ok((boot, changes)) = serde_json::from_str::<(String, Vec<Change>)>(&text) else {
        return 0;
    };
    if boot == boot_id() {
        for change in &changes {
            if let Err(error) = undo(change, cgroup) {
                tracing::warn!("{change:?} is not undone: {error}");
            }
        }
    }
    let _ = fs::remove_file(record);
    changes.len()
}

fn undo(change: &Change, cgroup: Option<&Path>) -> io::Result<()> {
    let done = match *change {
        Change::Route { netns, to, table } => {
            run_in_namespace(netns, cgroup, || route::remove_from(table, to))
        }
        Change::Namespace { netns, before } => {
            run_in_namespace(netns, cgroup, || threshold::restore(before))
        }
    };
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()), // it went with its namespace
        done => done,
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Route { netns, to } => {
                write!(f, "the route to {to} in network namespace {netns}")
            }
            Self::Namespace { netns } => {
                write!(f, "tcp_pingpong_thresh of network namespace {netns}")
            }
        }
    }
}
