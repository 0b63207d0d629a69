//! Two hosts joined by one veth pair: the network under every experiment. Everything is named
//! `bw-*`, removed when dropped, and what a killed run of the same tag left is removed first.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::cgroup::{self, Cgroup};
use crate::host::{Host, Namespace, veth};
use crate::wire::{Wire, WireSpec};

/// The server's IPv4 address.
pub const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The client's IPv4 address.
pub const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// The link's name at both ends.
pub const LINK: &str = "bw-veth";
/// Congestion control at both hosts, so that results do not depend on the machine's default. It is
/// a property of the routes: the sysctl of a namespace takes only what the whole machine allows.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";

/// Settings of the network that results depend on.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkSettings {
    /// Congestion control of connections between the hosts.
    pub tcp_congestion_control: &'static str,
    /// `net.ipv4.tcp_autocorking` of both hosts: a batching mechanism that ignores TCP_NODELAY.
    pub tcp_autocorking: String,
    /// Bytes.
    pub mtu: u32,
    /// CPU of the server's processes.
    pub server_cpu: usize,
    /// CPU of the client's processes.
    pub client_cpu: usize,
}

impl NetworkSettings {
    /// Of the network between `server` and `client`, whose links carry `mtu` bytes.
    pub(crate) fn of(server: &Host, client: &Host, mtu: u32) -> Result<Self> {
        Ok(Self {
            tcp_congestion_control: CONGESTION_CONTROL,
            tcp_autocorking: server.sysctl("net/ipv4/tcp_autocorking")?,
            mtu,
            server_cpu: server.cpu(),
            client_cpu: client.cpu(),
        })
    }
}

/// What is claimed of a tag.
const ROLES: [&str; 3] = ["srv", "cli", "mid"];

/// A server and a client.
#[derive(Debug)]
pub struct TwoHosts {
    // before the hosts
    wire: Option<(Wire, Namespace)>,
    /// The server, 10.77.0.1 and fd77::1.
    pub server: Host,
    /// The client, 10.77.0.2 and fd77::2.
    pub client: Host,
    _ground: Ground, // after the hosts
}

impl TwoHosts {
    /// Builds both hosts. `tag` names them: `bw-<tag>-srv`, `bw-<tag>-cli`.
    pub fn build(tag: &str) -> Result<Self> {
        Self::joined(tag, None)
    }

    /// The same so far apart that what the client sends takes this long; a wire on the server's CPU
    /// carries the frames, so offloads are off.
    pub fn build_apart(tag: &str, delay: Duration) -> Result<Self> {
        Self::build_over(tag, &WireSpec::delaying(delay, Duration::ZERO))
    }

    /// The same with a wire that does this to what the client sends.
    pub fn build_over(tag: &str, spec: &WireSpec) -> Result<Self> {
        Self::joined(tag, Some(spec))
    }

    /// Changes what the wire does to frames that come from now on, if there is one.
    pub fn set_wire(&self, spec: &WireSpec) {
        if let Some((wire, _)) = &self.wire {
            wire.set(spec);
        }
    }

    fn joined(tag: &str, spec: Option<&WireSpec>) -> Result<Self> {
        let ground = Ground::claim(tag, &ROLES)?;
        let host = |role, cpu| ground.host(role, ground.namespace(role)?, cpu);
        let (server, client) = (host("srv", 0)?, host("cli", 1)?);
        let ends = [&client, &server].map(|host| (host.namespace(), LINK));
        let wire = match spec {
            None => {
                veth(ends[1], ends[0])?;
                None
            }
            Some(spec) => {
                let middle = ground.namespace("mid")?;
                let wire = Wire::between(&middle, server.cpu(), spec, ends[0], ends[1])?;
                // frames are to be as they are on the wire
                for (namespace, link) in ends {
                    namespace.set_offloads(link, &["tx", "tso", "gso"], false)?;
                }
                Some((wire, middle))
            }
        };
        let hosts = Self {
            wire,
            server,
            client,
            _ground: ground,
        };
        hosts.connect()?;
        Ok(hosts)
    }

    /// Where a server that listens on `port` is reached from the client.
    pub fn server_address(&self, port: u16) -> SocketAddr {
        SocketAddr::from((SERVER_IP, port))
    }

    /// Makes each host's CPU process what the host receives; see [`Host::receive_on_own_cpu`].
    pub fn receive_on_own_cpus(&self) -> Result<()> {
        self.server.receive_on_own_cpu(LINK)?;
        self.client.receive_on_own_cpu(LINK)
    }

    /// Has each host's link polled on its CPU; see [`Host::poll_on_own_cpu`].
    pub fn poll_on_own_cpus(&self) -> Result<()> {
        self.server.poll_on_own_cpu(LINK)?;
        self.client.poll_on_own_cpu(LINK)
    }

    /// The settings of the network as the kernel has them.
    pub fn settings(&self) -> Result<NetworkSettings> {
        NetworkSettings::of(&self.server, &self.client, 1500)
    }

    fn connect(&self) -> Result<()> {
        let ends = [
            (&self.server, "02:00:00:00:77:01", "10.77.0.1", "fd77::1"),
            (&self.client, "02:00:00:00:77:02", "10.77.0.2", "fd77::2"),
        ];
        for (i, (host, mac, v4, v6)) in ends.iter().enumerate() {
            let (_, peer_mac, peer_v4, peer_v6) = ends[1 - i];
            let ip = |command: String| host.namespace().ip(&command);
            ip(format!("link set {LINK} address {mac} mtu 1500"))?;
            ip(format!("addr add {v4}/24 dev {LINK} noprefixroute"))?;
            ip(format!("addr add {v6}/64 dev {LINK} nodad noprefixroute"))?;
            ip(format!("link set {LINK} up"))?;
            for network in ["10.77.0.0/24", "fd77::/64"] {
                let congctl = CONGESTION_CONTROL;
                ip(format!("route add {network} dev {LINK} congctl {congctl}"))?;
            }
            for peer in [peer_v4, peer_v6] {
                ip(format!("neigh replace {peer} lladdr {peer_mac} dev {LINK}"))?;
            }
        }
        Ok(())
    }
}

/// What all hosts of a tag stand on: nobody else has the tag, and their cgroups are below one.
#[derive(Debug)]
pub(crate) struct Ground {
    tag: String,
    // children before their parent
    observers: Cgroup,
    root: Cgroup,
    _lock: UnixListener,
}

impl Ground {
    /// Claims a tag. What a killed run of it left is removed: processes, cgroups, and the namespaces of
    /// these roles.
    pub(crate) fn claim(tag: &str, roles: &[&str]) -> Result<Self> {
        let lock = lock(tag)?;
        let root = cgroup::mount_point()?.join(format!("bw-{tag}"));
        cgroup::remove_tree(&root)?;
        for role in roles {
            Namespace::remove(&format!("bw-{tag}-{role}"))?;
        }
        let root = Cgroup::create(root)?;
        Ok(Self {
            tag: tag.to_owned(),
            observers: Cgroup::create(root.path().join("obs"))?,
            root,
            _lock: lock,
        })
    }

    /// The namespace `bw-<tag>-<role>`.
    pub(crate) fn namespace(&self, role: &str) -> Result<Namespace> {
        Namespace::create(format!("bw-{}-{role}", self.tag))
    }

    /// A host with this namespace, on this CPU or the last that there is.
    pub(crate) fn host(&self, role: &str, namespace: Namespace, cpu: usize) -> Result<Host> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cgroup = Cgroup::create(self.root.path().join(role))?;
        let observers = self.observers.procs_file();
        Ok(Host::new(namespace, cgroup, observers, cpu.min(cpus - 1)))
    }
}

/// Keeps two runs of one tag apart: an abstract socket name, which the kernel gives back when the
/// lab ends, however it ends.
fn lock(tag: &str) -> Result<UnixListener> {
    let name = format!("bw-{tag}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
    match UnixListener::bind_addr(&address) {
        Ok(held) => Ok(held),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!("another lab run called {tag:?} is under way; wait for its end")
        }
        Err(error) => Err(error).with_context(|| format!("claiming the name {name:?}")),
    }
}
