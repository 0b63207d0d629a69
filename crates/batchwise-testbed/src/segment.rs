//! Two clients, a load balancer and four servers on one LAN, as for direct server return: clients
//! reach the virtual address by the balancer, and servers, who all have it, answer clients
//! directly. Everything is named `bw-*`, removed when dropped, and what a killed run of the same
//! tag left is removed first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use anyhow::Result;

use crate::cgroup::{self, Cgroup};
use crate::host::{Host, Namespace, ip};
use crate::pass;
use crate::topology::{CONGESTION_CONTROL, NetworkSettings, lock, remove_leftovers, veth};

/// The address of the service: on every server's loopback, announced by none.
pub const VIP: Ipv4Addr = Ipv4Addr::new(10, 79, 9, 1);
/// The same in IPv6.
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0xfd79, 9, 0, 0, 0, 0, 0, 1);
/// The link to the LAN, in every host.
pub const LINK: &str = "bw-lan";
/// Clients.
pub const CLIENTS: u8 = 2;
/// Servers.
pub const SERVERS: u8 = 4;
/// What clients send, and are sent, at most, bytes.
pub const CLIENT_MTU: u32 = 1500;

const BRIDGE: &str = "bw-br";
/// Numbers of hosts in 10.79.0.0/24 and fd79::/64: the bridge, which stands for a router that the
/// balancer has a route by but that forwards nothing, the balancer, and those before the first
/// client and server.
const ROUTER: u8 = 1;
const BALANCER: u8 = 10;
const BEFORE_CLIENTS: u8 = 10;
const BEFORE_SERVERS: u8 = 20;

/// What segments differ in.
#[derive(Clone, Copy, Debug)]
pub struct SegmentSpec {
    /// MTU of the LAN between balancer and servers, bytes. An outer header of IP in IP needs more
    /// than [`CLIENT_MTU`].
    pub mtu: u32,
}

impl Default for SegmentSpec {
    fn default() -> Self {
        Self { mtu: CLIENT_MTU }
    }
}

/// The hosts.
#[derive(Debug)]
pub struct Segment {
    /// 10.79.0.11 and 12, fd79::11 and 12.
    pub clients: Vec<Host>,
    /// 10.79.0.10 and fd79::10; it forwards nothing by itself.
    pub balancer: Host,
    /// 10.79.0.21 to 24, fd79::21 to 24, and the virtual addresses.
    pub servers: Vec<Host>,
    spec: SegmentSpec,
    passing: Option<OwnedFd>,
    // After the hosts; cgroups: children before their parent.
    bridge: Namespace,
    _observers: Cgroup,
    _root: Cgroup,
    _lock: UnixListener,
}

/// The IPv4 and the IPv6 address of the client with this index.
pub fn client(index: u8) -> (Ipv4Addr, Ipv6Addr) {
    addresses(BEFORE_CLIENTS + 1 + index)
}

/// The IPv4 and the IPv6 address of the server with this index.
pub fn server(index: u8) -> (Ipv4Addr, Ipv6Addr) {
    addresses(BEFORE_SERVERS + 1 + index)
}

/// The addresses of the balancer.
pub fn balancer() -> (Ipv4Addr, Ipv6Addr) {
    addresses(BALANCER)
}

/// Number N of the LAN is 10.79.0.N and fd79::N, N written in decimal in both.
fn addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let decimal = u16::from(number / 10 * 16 + number % 10);
    (
        Ipv4Addr::new(10, 79, 0, number),
        Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, decimal),
    )
}

fn mac(number: u8) -> String {
    format!("02:00:00:00:79:{number:02x}")
}

impl Segment {
    /// Builds it. `tag` names the hosts: `bw-<tag>-c1` and `c2`, `lb`, `s1` to `s4`, and `net` for
    /// the LAN itself.
    pub fn build(tag: &str, spec: SegmentSpec) -> Result<Self> {
        let lock = lock(tag)?;
        let root = cgroup::mount_point()?.join(format!("bw-{tag}"));
        let clients: Vec<_> = (1..=CLIENTS).map(|n| format!("c{n}")).collect();
        let servers: Vec<_> = (1..=SERVERS).map(|n| format!("s{n}")).collect();
        let named = clients.iter().chain(&servers).map(String::as_str);
        let roles: Vec<_> = named.chain(["lb", "net"]).collect();
        remove_leftovers(tag, &root, &roles)?;

        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let root = Cgroup::create(root)?;
        let observers = Cgroup::create(root.path().join("obs"))?;
        let namespace = |role: &str| -> Result<Namespace> {
            let namespace = Namespace::create(format!("bw-{tag}-{role}"))?;
            for device in ["all", "default"] {
                let set = |name: &str, value: &str| {
                    namespace.set_sysctl(&format!("net/ipv4/conf/{device}/{name}"), value)
                };
                // Requests and responses go by different ways, which a reverse-path filter drops.
                set("rp_filter", "0")?;
                // A redirect would teach another way than by the balancer.
                set("send_redirects", "0")?;
                set("accept_redirects", "0")?;
                // Nobody tells the LAN of the virtual address on a loopback.
                set("arp_ignore", "1")?;
                set("arp_announce", "2")?;
            }
            // Link-local addresses, which neighbour discovery needs for forwarded packets and for
            // those from a loopback's address, are there at once; nobody looks for a router.
            for (name, value) in [("accept_dad", "0"), ("router_solicitations", "0")] {
                namespace.set_sysctl(&format!("net/ipv6/conf/default/{name}"), value)?;
            }
            Ok(namespace)
        };
        let host = |role: &str, cpu: usize| -> Result<Host> {
            let cgroup = Cgroup::create(root.path().join(role))?;
            let observers = observers.procs_file();
            Ok(Host::new(
                namespace(role)?,
                cgroup,
                observers,
                cpu.min(cpus - 1),
            ))
        };
        let hosts = |roles: &[String], cpu| -> Result<Vec<Host>> {
            roles.iter().map(|role| host(role, cpu)).collect()
        };
        let mut built = Self {
            clients: hosts(&clients, 1)?,
            balancer: host("lb", 1)?,
            servers: hosts(&servers, 0)?,
            spec,
            passing: None,
            bridge: namespace("net")?,
            _observers: observers,
            _root: root,
            _lock: lock,
        };
        built.connect()?;
        built.route()?;
        Ok(built)
    }

    /// Makes the CPU of each host process what the host receives; see
    /// [`Host::receive_on_own_cpu`]. What reaches the balancer's XDP program runs on the CPU of
    /// the client that sent it, which is its own.
    pub fn receive_on_own_cpus(&self) -> Result<()> {
        let hosts = self.clients.iter().chain(&self.servers);
        hosts
            .chain([&self.balancer])
            .try_for_each(|host| host.receive_on_own_cpu(LINK))
    }

    /// Plugs the cable of the server with this index in, or pulls it.
    pub fn plug(&self, server: u8, plugged: bool) -> Result<()> {
        let port = format!("bw-s{}", server + 1);
        let state = if plugged { "up" } else { "down" };
        ip(&["-n", self.bridge.name(), "link", "set", &port, state])
    }

    /// The settings of the network as the kernel has them.
    pub fn settings(&self) -> Result<NetworkSettings> {
        NetworkSettings::of(&self.servers[0], &self.clients[0], self.spec.mtu)
    }

    /// All hosts, with their numbers and the names of their ports at the bridge.
    fn ports(&self) -> Vec<(&Host, u8, String)> {
        let numbered = |hosts, before, letter: char| {
            let named =
                move |(n, host)| -> (_, u8, _) { (host, before + n, format!("bw-{letter}{n}")) };
            (1u8..).zip::<std::slice::Iter<'_, Host>>(hosts).map(named)
        };
        let mut ports = vec![(&self.balancer, BALANCER, "bw-lb".to_owned())];
        ports.extend(numbered(self.clients.iter(), BEFORE_CLIENTS, 'c'));
        ports.extend(numbered(self.servers.iter(), BEFORE_SERVERS, 's'));
        ports
    }

    fn connect(&mut self) -> Result<()> {
        let net = self.bridge.name();
        let mtu = self.spec.mtu.to_string();
        // Learns by itself, at once, and floods the multicast of neighbour discovery.
        ip(&[
            "-n",
            net,
            "link",
            "add",
            BRIDGE,
            "address",
            &mac(ROUTER),
            "type",
            "bridge",
            "forward_delay",
            "0",
            "mcast_snooping",
            "0",
        ])?;
        configure(net, BRIDGE, ROUTER)?;
        for (host, number, port) in self.ports() {
            let n = host.namespace().name();
            veth(n, LINK, net, &port)?;
            ip(&["-n", n, "link", "set", LINK, "address", &mac(number)])?;
            ip(&[
                "-n", net, "link", "set", &port, "mtu", &mtu, "master", BRIDGE,
            ])?;
            ip(&["-n", net, "link", "set", &port, "addrgenmode", "none", "up"])?;
            let client = self.clients.iter().any(|client| std::ptr::eq(client, host));
            let mtu = if client {
                CLIENT_MTU.to_string()
            } else {
                mtu.clone()
            };
            ip(&["-n", n, "link", "set", LINK, "mtu", &mtu])?;
            configure(n, LINK, number)?;
            if client {
                // Each packet of a client is one on the wire, with a checksum.
                let off = ["tx", "tso", "gso"];
                host.namespace().set_offloads(LINK, &off, false)?;
            }
        }
        // What XDP_TX sends back stays in the veth's ring until its peer polls, which it is only
        // told to do when it has an XDP program itself (veth_xdp_flush()).
        self.passing = Some(self.bridge.inside(|| pass::attach("bw-lb"))?);
        ip(&["-n", net, "link", "set", BRIDGE, "mtu", &mtu])
    }

    fn route(&self) -> Result<()> {
        let (balancer, balancer6) = balancer();
        for client in &self.clients {
            let n = client.namespace().name();
            for (to, via) in [
                ("10.79.9.0/24", IpAddr::from(balancer)),
                ("fd79:9::/64", IpAddr::from(balancer6)),
            ] {
                let via = via.to_string();
                let by = ["via", &via, "dev", LINK, "congctl", CONGESTION_CONTROL];
                ip(&[&["-n", n, "route", "add", to], &by[..]].concat())?;
            }
        }
        let mtu = CLIENT_MTU.to_string();
        for server in &self.servers {
            let n = server.namespace().name();
            for (address, network) in [
                (format!("{VIP}/32"), "10.79.0.0/24"),
                (format!("{VIP6}/128"), "fd79::/64"),
            ] {
                let add = ["-n", n, "addr", "add", &address, "dev", "lo"];
                let nodad = address.contains(':').then_some("nodad");
                ip(&[&add[..], nodad.as_slice()].concat())?;
                let by = ["dev", LINK, "mtu", &mtu, "congctl", CONGESTION_CONTROL];
                ip(&[&["-n", n, "route", "replace", network], &by[..]].concat())?;
            }
        }
        // The balancer's own packets to the virtual address have a way out, as by a router.
        let n = self.balancer.namespace().name();
        let (router, router6) = addresses(ROUTER);
        for (to, via) in [
            ("10.79.9.0/24", IpAddr::from(router)),
            ("fd79:9::/64", IpAddr::from(router6)),
        ] {
            let via = via.to_string();
            ip(&["-n", n, "route", "add", to, "via", &via, "dev", LINK])?;
        }
        Ok(())
    }
}

/// Gives `link` of the namespace its addresses in the LAN, and takes it up.
fn configure(namespace: &str, link: &str, number: u8) -> Result<()> {
    let (v4, v6) = addresses(number);
    let (v4, v6) = (format!("{v4}/24"), format!("{v6}/64"));
    ip(&["-n", namespace, "addr", "add", &v4, "dev", link])?;
    ip(&["-n", namespace, "addr", "add", &v6, "dev", link, "nodad"])?;
    ip(&["-n", namespace, "link", "set", link, "up"])
}
