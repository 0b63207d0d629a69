//! Two clients, a load balancer and four servers on one LAN, as for direct server return: clients
//! reach the virtual address by the balancer, and servers, who all have it, answer clients
//! directly. Everything is named `bw-*`, removed when dropped, and what a killed run of the same
//! tag left is removed first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use anyhow::Result;

use crate::host::{Host, Namespace, veth};
use crate::pass;
use crate::topology::{CONGESTION_CONTROL, Ground, NetworkSettings};

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
    // After the hosts.
    bridge: Namespace,
    _ground: Ground,
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
        let clients: Vec<_> = (1..=CLIENTS).map(|n| format!("c{n}")).collect();
        let servers: Vec<_> = (1..=SERVERS).map(|n| format!("s{n}")).collect();
        let named = clients.iter().chain(&servers).map(String::as_str);
        let roles: Vec<_> = named.chain(["lb", "net"]).collect();
        let ground = Ground::claim(tag, &roles)?;
        let namespace = |role: &str| -> Result<Namespace> {
            let namespace = ground.namespace(role)?;
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
        let host = |role: &str, cpu| ground.host(role, namespace(role)?, cpu);
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
            _ground: ground,
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
        self.bridge.ip(&format!("link set {port} {state}"))
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
        let net = &self.bridge;
        let lan_mtu = self.spec.mtu;
        // Learns by itself, at once, and floods the multicast of neighbour discovery.
        let quick = "forward_delay 0 mcast_snooping 0";
        let mac_of_bridge = mac(ROUTER);
        net.ip(&format!(
            "link add {BRIDGE} address {mac_of_bridge} type bridge {quick}"
        ))?;
        configure(net, BRIDGE, ROUTER)?;
        for (host, number, port) in self.ports() {
            let namespace = host.namespace();
            let client = self.clients.iter().any(|client| std::ptr::eq(client, host));
            let (mac, mtu) = (mac(number), if client { CLIENT_MTU } else { lan_mtu });
            veth((namespace, LINK), (net, &port))?;
            net.ip(&format!("link set {port} mtu {lan_mtu} master {BRIDGE}"))?;
            net.ip(&format!("link set {port} addrgenmode none up"))?;
            namespace.ip(&format!("link set {LINK} address {mac} mtu {mtu}"))?;
            configure(namespace, LINK, number)?;
            if client {
                // Each packet of a client is one on the wire, with a checksum.
                namespace.set_offloads(LINK, &["tx", "tso", "gso"], false)?;
            }
        }
        // What XDP_TX sends back stays in the veth's ring until its peer polls, which it is only
        // told to do when it has an XDP program itself (veth_xdp_flush()).
        self.passing = Some(self.bridge.inside(|| pass::attach("bw-lb"))?);
        self.bridge.ip(&format!("link set {BRIDGE} mtu {lan_mtu}"))
    }

    fn route(&self) -> Result<()> {
        let (balancer, balancer6) = balancer();
        // The balancer's own packets to the virtual address have a way out, as by a router.
        let (router, router6) = addresses(ROUTER);
        for (to, by, out) in [
            ("10.79.9.0/24", IpAddr::from(balancer), IpAddr::from(router)),
            ("fd79:9::/64", balancer6.into(), router6.into()),
        ] {
            for client in &self.clients {
                let by = format!("via {by} dev {LINK} congctl {CONGESTION_CONTROL}");
                client.namespace().ip(&format!("route add {to} {by}"))?;
            }
            let way_out = format!("route add {to} via {out} dev {LINK}");
            self.balancer.namespace().ip(&way_out)?;
        }
        for server in &self.servers {
            let n = server.namespace();
            n.ip(&format!("addr add {VIP}/32 dev lo"))?;
            n.ip(&format!("addr add {VIP6}/128 dev lo nodad"))?;
            for network in ["10.79.0.0/24", "fd79::/64"] {
                let by = format!("dev {LINK} mtu {CLIENT_MTU} congctl {CONGESTION_CONTROL}");
                n.ip(&format!("route replace {network} {by}"))?;
            }
        }
        Ok(())
    }
}

/// Gives `link` of the namespace its addresses in the LAN, and takes it up.
fn configure(namespace: &Namespace, link: &str, number: u8) -> Result<()> {
    let (v4, v6) = addresses(number);
    namespace.ip(&format!("addr add {v4}/24 dev {link}"))?;
    namespace.ip(&format!("addr add {v6}/64 dev {link} nodad"))?;
    namespace.ip(&format!("link set {link} up"))
}
