//! Where a drill plays: two hosts, Redis at the server, and the test itself as an application of the
//! client host, so that it can look into its own sockets and check every reply.

use std::net::SocketAddr;

use crate::cgroup::Membership;
use crate::host::Host;
use crate::redis::{PORT, RedisServer};

use super::Stage;

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
        let membership = Membership::join(stage.hosts.client.cgroup());
        Self {
            _membership: membership.expect("joining the client host"),
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
