//! Whose the services are: found out when there are new ones, and again now and then, since another process may have
//! taken one over. Nobody is asked but the kernel (`/proc` and the descriptors of all processes), and the
//! kubelet where that is wanted.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use batchwise_bpf::{Connection, Walker};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::process::Process;

use super::kube::Kube;
use crate::frame::human::process_name;

/// Looking takes at most one in so many parts of the time. A machine with 100,000 descriptors takes 10 ms.
const SHARE: u32 = 500;
/// Names are as old as this at most.
const LOOK_ANEW: Duration = Duration::from_secs(60);

/// Of services.
#[derive(Debug)]
pub struct Names {
    walker: Walker,
    /// The process whose services are meant.
    only: Option<u32>,
    /// Who knows more of pods.
    kube: Option<Kube>,
    known: HashMap<ServiceKey, Process>,
    /// When the last look was, and when the next one may be.
    looked: Option<(Instant, Instant)>,
}

impl Names {
    /// Of those of this process, or of all.
    pub fn new(walker: Walker, only: Option<u32>, kube: Option<Kube>) -> Self {
        Self {
            walker,
            only,
            kube,
            known: HashMap::new(),
            looked: None,
        }
    }

    pub fn of(&self, service: &ServiceKey) -> Option<&Process> {
        self.known.get(service)
    }

    /// Whether it is one that is meant.
    pub fn admit(&self, service: &ServiceKey) -> bool {
        self.only.is_none() || self.known.contains_key(service)
    }

    /// Learns the names of these services, which have these connections.
    pub fn learn<'a>(
        &mut self,
        keys: &BTreeSet<ServiceKey>,
        open: impl Iterator<Item = &'a Connection>,
    ) -> anyhow::Result<()> {
        self.known.retain(|service, _| keys.contains(service));
        let is_new = keys.len() > self.known.len();
        let is_due = self.looked.is_none_or(|(last, next)| {
            last.elapsed() >= LOOK_ANEW || is_new && Instant::now() >= next
        });
        if !is_due {
            return Ok(());
        }
        let begin = Instant::now();
        let holders = self.walker.look(self.only)?;
        let mut pids: HashMap<ServiceKey, u32> = HashMap::new();
        let of_listener = |key: &ServiceKey| Some((*key, holders.of_listener(key)?));
        pids.extend(keys.iter().filter_map(of_listener));
        for c in open {
            if let Some(pid) = holders.of_connection(c.cookie) {
                pids.entry(c.service()).or_insert(pid);
            }
        }
        let mut processes: HashMap<u32, Option<Process>> = HashMap::new();
        for (service, pid) in pids {
            let read = || self.read(pid);
            let process = processes.entry(pid).or_insert_with(read).clone();
            // one whose sockets have all closed by now keeps the name that it had
            self.known.extend(process.map(|process| (service, process)));
        }
        let took = begin.elapsed();
        tracing::debug!("names of {} services took {took:.1?}", keys.len());
        self.looked = Some((Instant::now(), Instant::now() + took * SHARE));
        Ok(())
    }

    /// None: it has ended.
    fn read(&self, pid: u32) -> Option<Process> {
        let file = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let (comm, cgroups) = (file("comm")?, file("cgroup")?);
        let [comm, path] = [&comm[..], path(&cgroups)].map(process_name);
        let mut process = Process::new(pid, &comm, &path);
        let (kube, uid) = (self.kube.as_ref(), process.pod_uid.as_ref());
        process.pod = kube.zip(uid).and_then(|(kube, uid)| kube.pod(uid));
        Some(process)
    }
}

/// The cgroup of a systemd unit, by its name; what ends with no kind is a service.
pub fn find_unit(name: &str) -> anyhow::Result<PathBuf> {
    let root = batchwise_bpf::find_cgroup(None)?;
    let found = below(&root, &unit_file(name));
    match &found[..] {
        [] => bail!("no unit {name} is running: `systemctl --type=service` lists what is"),
        [one] => Ok(one.clone()),
        several => {
            let several: Vec<_> = several
                .iter()
                .map(|dir| dir.display().to_string())
                .collect();
            bail!(
                "several units are called {name}: choose by --cgroup {}",
                several.join(" or ")
            )
        }
    }
}

fn unit_file(name: &str) -> String {
    let has_kind = [".service", ".scope", ".slice"]
        .iter()
        .any(|kind| name.ends_with(kind));
    match has_kind {
        true => name.to_owned(),
        false => format!("{name}.service"),
    }
}

/// Folders of that name, wherever they are.
fn below(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let all = fs::read_dir(&folder).into_iter().flatten().flatten();
        let all = all.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in all {
            if entry.file_name().as_encoded_bytes() == name.as_bytes() {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found.sort();
    found
}

/// The path that says most, of cgroup v2 and of the hierarchies beside it: services are in the same everywhere, or at the root.
fn path(cgroups: &str) -> &str {
    let paths = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2));
    paths.max_by_key(|path| path.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_by_its_name_with_and_without_its_kind() {
        let dir = tempfile::tempdir().expect("a directory");
        let redis = dir.path().join("system.slice/redis.service");
        let mine = dir
            .path()
            .join("user.slice/user@1000.service/app.slice/web.service");
        for unit in [&redis, &mine] {
            fs::create_dir_all(unit).expect("a directory");
        }
        assert_eq!(below(dir.path(), &unit_file("redis")), [redis]);
        assert_eq!(below(dir.path(), &unit_file("web.service")), [mine]);
        assert!(below(dir.path(), &unit_file("red")).is_empty());
    }

    #[test]
    fn the_path_that_says_most_is_taken_whichever_hierarchy_has_it() {
        assert_eq!(
            path("0::/system.slice/redis.service\n"),
            "/system.slice/redis.service"
        );
        let hybrid = "12:pids:/docker/4f1d\n1:name=systemd:/docker/4f1d\n0::/\n";
        assert_eq!(path(hybrid), "/docker/4f1d");
        assert_eq!(path(""), "");
    }
}
