//! How delayed acknowledgments are cut short where a socket's own timer is not short enough: by a route to the other
//! end, or in a whole network namespace. What is set is written down first: whoever ends last undoes it. What someone
//! else has changed since is left alone.

mod route;
mod threshold;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use batchwise_bpf::Namespace;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::Lever;
use serde::{Deserialize, Serialize};

use super::place::boot_id;
use crate::frame::whole::replace;
use route::HostRoute;

/// Between looks whether someone else has changed what is set.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// What could not be set is tried again after this time.
const AGAIN: Duration = Duration::from_secs(60);

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
    record: PathBuf,
    set: HashMap<Target, Set>,
    /// What could not be set, and when that was tried.
    failed: HashMap<Target, Instant>,
    /// Changed by someone else: theirs from then on.
    theirs: BTreeSet<Target>,
    /// Kept open while tests pull one way and the other.
    namespaces: HashMap<u32, Namespace>,
    checked: Instant,
}

struct Set {
    change: Change,
    /// It follows the one that it is a copy of.
    route: Option<HostRoute>,
}

impl Levers {
    /// `record`: where it is written down.
    pub fn new(scope: Lever, record: &Path) -> Self {
        Self {
            scope,
            record: record.to_owned(),
            set: HashMap::new(),
            failed: HashMap::new(),
            theirs: BTreeSet::new(),
            namespaces: HashMap::new(),
            checked: Instant::now(),
        }
    }

    /// Has exactly these services' acknowledgments cut short, each at the finest that goes beyond its sockets.
    pub fn pull<'a>(&mut self, services: impl Iterator<Item = &'a ServiceKey>) {
        let wanted: BTreeSet<_> = services
            .filter_map(|service| self.pull_for(service))
            .collect();
        let dropped = self.set.keys().filter(|target| !wanted.contains(target));
        for target in dropped.copied().collect::<Vec<_>>() {
            self.drop(target);
        }
        if self.checked.elapsed() >= CHECK_EVERY {
            self.checked = Instant::now();
            self.check();
        }
    }

    /// What cuts a service's acknowledgments short while that is in force.
    pub fn of(&self, service: &ServiceKey) -> Lever {
        match self.target_of(service) {
            Some(Target::Route { .. }) => Lever::Route,
            Some(Target::Namespace { .. }) => Lever::Namespace,
            None => Lever::Socket,
        }
    }

    /// Whether what is set for a service would be for this one, too.
    pub fn are_shared(&self, by: &ServiceKey, with: &ServiceKey) -> bool {
        let set = self.target_of(by);
        set.is_some_and(|set| self.targets(with).contains(&set))
    }

    /// Undoes what the guard has not: it may have come first.
    pub fn undo(&mut self) {
        for target in self.set.keys().copied().collect::<Vec<_>>() {
            self.drop(target);
        }
        self.namespaces.clear();
    }

    fn target_of(&self, service: &ServiceKey) -> Option<Target> {
        let mut targets = self.targets(service).into_iter();
        targets.find(|target| self.set.contains_key(target))
    }

    /// The finest first. A server's other ends are many, and a link-local address is on any link: there is no route to these.
    fn targets(&self, service: &ServiceKey) -> Vec<Target> {
        let netns = service.netns;
        let to = service.server.ip().to_canonical();
        let is_local = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
        let has_route = service.side == Side::Client && !is_local && self.scope >= Lever::Route;
        let route = has_route.then_some(Target::Route { netns, to });
        let namespace = (self.scope >= Lever::Namespace).then_some(Target::Namespace { netns });
        route.into_iter().chain(namespace).collect()
    }

    /// Sets the finest that can be, unless someone else has changed it.
    fn pull_for(&mut self, service: &ServiceKey) -> Option<Target> {
        for target in self.targets(service) {
            if self.set.contains_key(&target) {
                return Some(target);
            }
            if self.theirs.contains(&target) {
                return None;
            }
            if self
                .failed
                .get(&target)
                .is_some_and(|at| at.elapsed() < AGAIN)
            {
                continue;
            }
            match self.set(target) {
                Ok(()) => return Some(target),
                Err(error) => {
                    tracing::warn!("{target}: {error}; acknowledgments are cut short without it");
                    self.failed.insert(target, Instant::now());
                }
            }
        }
        None
    }

    fn set(&mut self, target: Target) -> io::Result<()> {
        let set = match target {
            Target::Route { netns, to } => {
                let route = self.namespace(netns)?.run(|| HostRoute::prepare(to))?;
                let table = route.table();
                Set {
                    change: Change::Route { netns, to, table },
                    route: Some(route),
                }
            }
            Target::Namespace { netns } => {
                let before = self.namespace(netns)?.run(threshold::get)?;
                Set {
                    change: Change::Namespace { netns, before },
                    route: None,
                }
            }
        };
        self.set.insert(target, set);
        let done = self.write().and_then(|()| match &self.set[&target].route {
            Some(route) => route.make(),
            None => self.namespace(target.netns())?.run(threshold::raise),
        });
        match done {
            // a guard that took us for dead meanwhile has found nothing to undo, and struck it
            Ok(()) => self.write(),
            Err(error) => {
                self.set.remove(&target);
                self.warn_if_unwritten();
                Err(error)
            }
        }
    }

    /// Undoes it; what cannot be is tried again.
    fn drop(&mut self, target: Target) {
        let Some(set) = self.set.get(&target) else {
            return;
        };
        let change = set.change;
        let done = self
            .namespace(target.netns())
            .and_then(|namespace| change.undo(namespace));
        if let Err(error) = done {
            if self.failed.insert(target, Instant::now()).is_none() {
                tracing::warn!("{target}: {error}; it stays as it is until this works");
            }
            return;
        }
        self.failed.remove(&target);
        self.set.remove(&target);
        self.warn_if_unwritten();
    }

    /// What someone else has changed is theirs; a namespace without processes is not kept by us.
    fn check(&mut self) {
        for target in self.set.keys().copied().collect::<Vec<_>>() {
            let is_inhabited = Namespace::find(target.netns()).is_ok();
            match self.is_ours(target) {
                Ok(true) if is_inhabited => continue,
                _ if !is_inhabited => {}
                Ok(_) => {
                    tracing::warn!(
                        "{target} was changed by someone else: it is left alone from now on"
                    );
                    self.theirs.insert(target);
                }
                Err(error) => {
                    tracing::warn!("{target}: {error}");
                    self.failed.insert(target, Instant::now());
                }
            }
            self.drop(target);
        }
        let set: BTreeSet<_> = self.set.keys().map(Target::netns).collect();
        self.namespaces.retain(|netns, _| set.contains(netns));
    }

    fn is_ours(&mut self, target: Target) -> io::Result<bool> {
        match self.set.get_mut(&target).and_then(|set| set.route.as_mut()) {
            Some(route) => route.follow(),
            None => self.namespace(target.netns())?.run(threshold::is_raised),
        }
    }

    fn namespace(&mut self, netns: u32) -> io::Result<&Namespace> {
        match self.namespaces.entry(netns) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => Ok(new.insert(Namespace::find(netns)?)),
        }
    }

    fn warn_if_unwritten(&self) {
        if let Err(error) = self.write() {
            tracing::warn!("{error}");
        }
    }

    fn write(&self) -> io::Result<()> {
        write(
            &self.record,
            self.set.values().map(|set| set.change).collect(),
        )
    }
}

/// Undoes what is written down there: an agent is gone that set it in this boot. Says how many that were.
pub fn undo_all(record: &Path) -> anyhow::Result<usize> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let Ok((boot, mut changes)) = serde_json::from_str::<(String, Vec<Change>)>(&text) else {
        return Ok(0);
    };
    changes.retain(|_| boot == boot_id());
    let all = changes.len();
    changes.retain(|change| {
        let done =
            Namespace::find(change.target().netns()).and_then(|namespace| change.undo(&namespace));
        match done {
            // it went with its namespace
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!("{}: {error}; it stays as it is", change.target());
                true
            }
            Ok(()) => false,
        }
    });
    let left = changes.len();
    write(record, changes)?;
    if left > 0 {
        bail!("{left} of {all} changes to routes and namespaces could not be undone");
    }
    Ok(all)
}

fn write(record: &Path, changes: Vec<Change>) -> io::Result<()> {
    if changes.is_empty() {
        // one that is not there was never needed
        let _ = fs::remove_file(record);
        return Ok(());
    }
    let text = serde_json::to_string(&(boot_id(), changes))?;
    let named = |error| io::Error::other(format!("cannot write {}: {error}", record.display()));
    replace(record, &text).map_err(named)
}

impl Change {
    fn target(&self) -> Target {
        match *self {
            Self::Route { netns, to, .. } => Target::Route { netns, to },
            Self::Namespace { netns, .. } => Target::Namespace { netns },
        }
    }

    /// Unless someone else has changed it since.
    fn undo(&self, namespace: &Namespace) -> io::Result<()> {
        match *self {
            Self::Route { to, table, .. } => namespace.run(|| route::remove_from(table, to)),
            Self::Namespace { before, .. } => namespace.run(|| threshold::restore(before)),
        }
    }
}

impl Target {
    fn netns(&self) -> u32 {
        match *self {
            Self::Route { netns, .. } | Self::Namespace { netns } => netns,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
