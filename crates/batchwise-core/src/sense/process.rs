//! Whose the sockets of a service are, in names that its operators know: those that its cgroup's path has.

use alloc::borrow::ToOwned;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The process that listens for a service, or else one that holds a connection of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as in `/proc/PID/comm`.
    pub comm: String,
    /// The systemd unit that it is in, such as `redis-server.service`. null: it is in none.
    pub unit: Option<String>,
    /// The id of the container that it is in: 64 hexadecimal digits, or the name of one of LXC. null: it is in none.
    pub container: Option<String>,
    /// The uid of the Kubernetes pod that it is in. null: it is in none.
    pub pod_uid: Option<String>,
    /// What Kubernetes calls that pod. null: it was not asked (`--kube`), or does not know it.
    #[serde(default)]
    pub pod: Option<Pod>,
}

/// A pod's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pod {
    /// The namespace that it is in.
    pub namespace: String,
    /// Its own.
    pub name: String,
    /// Of what made it: a Deployment, a StatefulSet, a DaemonSet, a Job; its own if nothing did.
    pub workload: String,
}

impl Process {
    /// With what the path of its cgroup says, as in `/proc/PID/cgroup`.
    pub fn new(pid: u32, comm: &str, cgroup: &str) -> Self {
        let mut new = Self {
            pid,
            comm: comm.to_owned(),
            ..Self::default()
        };
        for part in cgroup.split('/') {
            new.take(part);
        }
        new
    }

    /// A path's parts go from the whole machine to the process: the last of each kind says most.
    fn take(&mut self, part: &str) {
        let bare = [".scope", ".slice", ".service"].into_iter();
        let bare = bare.fold(part, |part, kind| part.strip_suffix(kind).unwrap_or(part));
        // `cri-containerd-ID.scope`, `docker-ID.scope`, or `ID` alone
        let last = bare.rsplit(['-', ':']).next().unwrap_or(bare);
        if is_hex(last, 64) {
            (self.container, self.unit) = (Some(last.to_owned()), None);
        } else if let Some(name) = bare.strip_prefix("lxc.payload.") {
            (self.container, self.unit) = (Some(name.to_owned()), None);
        } else if let Some(uid) = bare.rsplit_once("pod").and_then(|(_, uid)| pod_uid(uid)) {
            self.pod_uid = Some(uid);
        } else if part.ends_with(".service") || part.ends_with(".scope") {
            self.unit = Some(part.to_owned());
        }
    }

    /// As people call it: by what made its pod, by its unit of systemd, anything else by its command.
    pub fn name(&self) -> &str {
        let workload = self.pod.as_ref().map(|pod| &pod.workload[..]);
        called(workload, self.unit.as_deref(), &self.comm)
    }
}

/// What people call a process of this workload, unit and command.
pub fn called<'a>(workload: Option<&'a str>, unit: Option<&'a str>, comm: &'a str) -> &'a str {
    let service = unit.and_then(|unit| unit.strip_suffix(".service"));
    workload.or(service).unwrap_or(comm)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `_` stands for `-` where systemd names slices; a pod of a file has a uid without.
fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-");
    let parts = uid.split('-').map(str::len);
    let is_uuid = parts.eq([8, 4, 4, 4, 12]) && is_hex(&uid.replace('-', ""), 32);
    (is_uuid || is_hex(&uid, 32)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const ID: &str = "4f1d2a9c0b3e4f1d2a9c0b3e4f1d2a9c0b3e4f1d2a9c0b3e4f1d2a9c0b3e4f1d";
    const UID: &str = "8dbc11a7-0c1e-4f2a-9a54-1b6a3c1d2e3f";

    #[test]
    fn a_path_names_unit_container_and_pod_whoever_made_it() {
        let slice = UID.replace('-', "_");
        let kubepods = "/kubepods.slice/kubepods-burstable.slice";
        for (path, [unit, container, pod]) in [
            ("/", [None; 3]),
            ("/user.slice", [None; 3]),
            (
                "/system.slice/redis-server.service",
                [Some("redis-server.service"), None, None],
            ),
            (
                "/system.slice/system-postgresql.slice/postgresql@15-main.service",
                [Some("postgresql@15-main.service"), None, None],
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service",
                [Some("web.service"), None, None],
            ),
            (
                &format!("/system.slice/docker-{ID}.scope"),
                [None, Some(ID), None],
            ),
            (&format!("/docker/{ID}"), [None, Some(ID), None]),
            (
                &format!("/machine.slice/libpod-{ID}.scope/container"),
                [None, Some(ID), None],
            ),
            (
                &format!("/machine.slice/libpod-{ID}.scope/system.slice/nginx.service"),
                [Some("nginx.service"), Some(ID), None],
            ),
            (
                "/lxc.payload.web-1/system.slice/nginx.service",
                [Some("nginx.service"), Some("web-1"), None],
            ),
            (
                &format!(
                    "{kubepods}/kubepods-burstable-pod{slice}.slice/cri-containerd-{ID}.scope"
                ),
                [None, Some(ID), Some(UID)],
            ),
            (
                &format!("/kubepods/besteffort/pod{UID}/{ID}"),
                [None, Some(ID), Some(UID)],
            ),
            (
                &format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{slice}.slice:cri-containerd:{ID}"
                ),
                [None, Some(ID), None],
            ),
        ] {
            let process = Process::new(1, "x", path);
            let found = [&process.unit, &process.container, &process.pod_uid];
            assert_eq!(
                found.map(Option::as_deref),
                [unit, container, pod],
                "{path}"
            );
        }
    }

    #[test]
    fn a_workload_and_a_unit_are_called_by_their_names_and_all_else_by_its_command() {
        let name = |path| Process::new(1, "redis-server", path).name().to_owned();
        assert_eq!(name("/system.slice/cache.service"), "cache");
        assert_eq!(name("/user.slice/session-3.scope"), "redis-server");
        assert_eq!(name(&format!("/docker/{ID}")), "redis-server");
        let pod = Some(Pod {
            workload: "cache".to_owned(),
            ..Pod::default()
        });
        let process = Process::new(1, "redis-server", "/");
        assert_eq!(Process { pod, ..process }.name(), "cache");
    }
}
