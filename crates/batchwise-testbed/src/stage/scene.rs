//! Where a drill plays: two hosts, Redis at the server, and the test itself as an application of the
//! client host, so that it can look into its own sockets and check every reply.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::cgroup;
use crate::host::Host;
use crate::redis::{PORT, RedisServer};

use super::Stage;

/// The test's process as a member of a host's cgroup, until dropped: a socket belongs to the cgroup
/// of the process that makes it. So does a process, and is killed with the host: tests of the same
/// binary that start any must wait for their turn.
struct Membership {
    home: PathBuf,
}

impl Membership {
    fn join(host: &Host) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").expect("our cgroup");
        let v2 = own.lines().find_map(|l| l.strip_prefix("0::/"));
        let root = cgroup::mount_point().expect("cgroup v2");
        let home = root.join(v2.expect("a cgroup v2")).join("cgroup.procs");
        fs::write(host.cgroup().join("cgroup.procs"), "0").expect("joining the host");
        Self { home }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        fs::write(&self.home, "0").expect("back to our own cgroup, for the host's will be killed");
    }
}

/// The hosts with their Redis. The fields are dropped in this order.
pub struct Scene {
    _membership: Membership,
    redis: Option<RedisServer>,
    /// The hosts.
    pub stage: Stage,
}

impl Scene {
    /// Builds it; `name` must be its own.
    pub fn build(name: &str) -> Self {
        let stage = Stage::build(name);
        let redis = Some(stage.redis());
        Self {
            _membership: Membership::join(&stage.hosts.client),
            redis,
            stage,
        }
    }

    /// The server host.
    pub fn server(&self) -> &Host {
        &self.stage.hosts.server
    }

    /// The client host.
    pub fn client(&self) -> &Host {
        &self.stage.hosts.client
    }

    /// Redis over IPv4.
    pub fn address(&self) -> SocketAddr {
        self.stage.redis_address()
    }

    /// Redis over IPv6.
    pub fn address_v6(&self) -> SocketAddr {
        SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, 1], PORT))
    }

    /// Kills Redis, and starts it anew.
    pub fn restart_redis(&mut self) {
        drop(self.redis.take());
        self.redis = Some(self.stage.redis());
    }
}
