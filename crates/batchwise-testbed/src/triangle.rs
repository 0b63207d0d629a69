//! A client, a vantage point and a server in a triangle: requests go through the vantage, responses
//! straight from the server to the client, as with direct server return. Everything is named
//! `bw-*`, removed when dropped, and what a killed run of the same tag left is removed first.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use crate::host::{Host, Namespace, veth};
use crate::topology::{CONGESTION_CONTROL, Ground, NetworkSettings};
use crate::wire::{Wire, WireSpec};

/// The server's IPv4 address.
pub const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The server's IPv6 address.
pub const SERVER_IP6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1);
/// The client's IPv4 address.
pub const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The client's IPv6 address.
pub const CLIENT_IP6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2);
/// The vantage's link to the client: where it sees every request.
pub const VANTAGE_LINK: &str = "bw-cli";
/// The client's link to the vantage: requests leave by it.
pub const CLIENT_LINK: &str = "bw-up";
/// The link between server and client, at both: responses take it.
pub const BACK_LINK: &str = "bw-back";

/// The vantage's link to the server: what it forwards leaves by it.
pub const VANTAGE_SERVER_LINK: &str = "bw-srv";
/// The server's link to the vantage: requests arrive by it.
pub const SERVER_LINK: &str = "bw-van";

const ROLES: [&str; 5] = ["cli", "van", "srv", "wire", "back"];

/// Which links have a [`Wire`] in them.
#[derive(Clone, Debug, Default)]
pub struct TriangleSpec {
    /// Between client and vantage, impairing what the client sends.
    pub access: Option<WireSpec>,
    /// Between server and client, impairing what the server sends.
    pub back: Option<WireSpec>,
}

/// The three hosts.
#[derive(Debug)]
pub struct Triangle {
    // Wires first: they end before their links are taken away.
    /// Between client and vantage, when there is one.
    pub access: Option<Wire>,
    /// Between server and client, when there is one.
    pub back: Option<Wire>,
    /// Sends requests; 10.78.0.2 and fd78::2.
    pub client: Host,
    /// Forwards requests and sees no response.
    pub vantage: Host,
    /// Sends responses straight to the client; 10.78.0.1 and fd78::1.
    pub server: Host,
    _middles: Vec<Namespace>,
    ground: Ground, // after the hosts
}

/// One end of a link.
struct End<'a> {
    namespace: &'a Namespace,
    name: &'a str,
    /// Unique number of the end: its MAC address ends with it.
    mac: u8,
    /// The link's network, and this end's number in it: 10.78.LINK.END and fd78:LINK::END.
    address: (u8, u8),
}

impl Triangle {
    /// Builds it. `tag` names the hosts: `bw-<tag>-cli`, `bw-<tag>-van`, `bw-<tag>-srv`.
    pub fn build(tag: &str, spec: &TriangleSpec) -> Result<Self> {
        let ground = Ground::claim(tag, &ROLES)?;
        let host = |role, cpu| {
            let namespace = ground.namespace(role)?;
            // Asymmetric routes are what reverse-path filters drop.
            for device in ["all", "default"] {
                namespace.set_sysctl(&format!("net/ipv4/conf/{device}/rp_filter"), "0")?;
            }
            ground.host(role, namespace, cpu)
        };
        let mut built = Self {
            client: host("cli", 1)?,
            vantage: host("van", 1)?,
            server: host("srv", 0)?,
            access: None,
            back: None,
            _middles: Vec::new(),
            ground,
        };
        built.connect(spec)?;
        built.route()?;
        Ok(built)
    }

    /// Where a server that listens on `port` is reached from the client.
    pub fn server_address(&self, port: u16) -> SocketAddr {
        SocketAddr::from((SERVER_IP, port))
    }

    /// Makes the CPUs of server and client process what they receive; see
    /// [`Host::receive_on_own_cpu`].
    pub fn receive_on_own_cpus(&self) -> Result<()> {
        self.server.receive_on_own_cpu(SERVER_LINK)?;
        self.client.receive_on_own_cpu(BACK_LINK)
    }

    /// The settings of the network as the kernel has them.
    pub fn settings(&self) -> Result<NetworkSettings> {
        NetworkSettings::of(&self.server, &self.client, 1500)
    }

    /// Fails when a wire has ended.
    pub fn check(&mut self) -> Result<()> {
        for wire in [&mut self.access, &mut self.back].into_iter().flatten() {
            wire.check()?;
        }
        Ok(())
    }

    fn connect(&mut self, spec: &TriangleSpec) -> Result<()> {
        let (client, vantage, server) = (
            self.client.namespace(),
            self.vantage.namespace(),
            self.server.namespace(),
        );
        let end = |namespace, name, mac, address| End {
            namespace,
            name,
            mac,
            address,
        };
        let up = end(client, CLIENT_LINK, 1, (1, 2));
        let arrival = end(vantage, VANTAGE_LINK, 2, (1, 1));
        let onward = end(vantage, VANTAGE_SERVER_LINK, 3, (2, 1));
        let service = end(server, SERVER_LINK, 4, (2, 2));
        let from_server = end(server, BACK_LINK, 5, (3, 1));
        let to_client = end(client, BACK_LINK, 6, (3, 2));

        let cpu = self.client.cpu();
        let join = |a: &End<'_>, b: &End<'_>, role: &str, spec: &Option<WireSpec>| {
            let (a, b) = ((a.namespace, a.name), (b.namespace, b.name));
            let Some(spec) = spec else {
                veth(a, b)?;
                return Ok((None, None));
            };
            let middle = self.ground.namespace(role)?;
            let wire = Wire::between(&middle, cpu, spec, a, b)?;
            anyhow::Ok((Some(wire), Some(middle)))
        };
        let (access, access_middle) = join(&up, &arrival, "wire", &spec.access)?;
        veth((vantage, onward.name), (server, service.name))?;
        let (back, back_middle) = join(&from_server, &to_client, "back", &spec.back)?;
        for (a, b) in [
            (&up, &arrival),
            (&onward, &service),
            (&from_server, &to_client),
        ] {
            a.configure(b)?;
            b.configure(a)?;
        }
        // Each packet of the client is one on the wire, with a checksum: gaps are between such.
        client.set_offloads(CLIENT_LINK, &["tx", "tso", "gso"], false)?;
        if back.is_some() {
            server.set_offloads(BACK_LINK, &["tx", "tso", "gso"], false)?;
        }
        self.access = access;
        self.back = back;
        self._middles = access_middle.into_iter().chain(back_middle).collect();
        Ok(())
    }

    fn route(&self) -> Result<()> {
        let (client, vantage, server) = (
            self.client.namespace(),
            self.vantage.namespace(),
            self.server.namespace(),
        );
        for (host, v4, v6) in [
            (client, CLIENT_IP, CLIENT_IP6),
            (server, SERVER_IP, SERVER_IP6),
        ] {
            host.ip(&format!("addr add {v4} dev lo"))?;
            host.ip(&format!("addr add {v6} dev lo nodad"))?;
        }
        vantage.set_sysctl("net/ipv4/ip_forward", "1")?;
        vantage.set_sysctl("net/ipv6/conf/all/forwarding", "1")?;
        // A redirect would teach the client another way.
        vantage.set_sysctl("net/ipv4/conf/all/send_redirects", "0")?;

        for (host, to, via, device, from) in [
            (client, "10.78.0.1", "10.78.1.1", CLIENT_LINK, "10.78.0.2"),
            (client, "fd78::1", "fd78:1::1", CLIENT_LINK, "fd78::2"),
            (server, "10.78.0.2", "10.78.3.2", BACK_LINK, "10.78.0.1"),
            (server, "fd78::2", "fd78:3::2", BACK_LINK, "fd78::1"),
        ] {
            let by = format!("via {via} dev {device} src {from} congctl {CONGESTION_CONTROL}");
            host.ip(&format!("route add {to} {by}"))?;
        }
        for (to, via, device) in [
            ("10.78.0.1", "10.78.2.2", VANTAGE_SERVER_LINK),
            ("fd78::1", "fd78:2::2", VANTAGE_SERVER_LINK),
            // For what the vantage itself has to say to the client.
            ("10.78.0.2", "10.78.1.2", VANTAGE_LINK),
            ("fd78::2", "fd78:1::2", VANTAGE_LINK),
        ] {
            vantage.ip(&format!("route add {to} via {via} dev {device}"))?;
        }
        Ok(())
    }
}

impl End<'_> {
    fn addresses(&self) -> [String; 2] {
        let (link, end) = self.address;
        [format!("10.78.{link}.{end}"), format!("fd78:{link}::{end}")]
    }

    fn mac(&self) -> String {
        format!("02:00:00:00:78:{:02x}", self.mac)
    }

    /// Gives this end its addresses, and tells it those of its peer.
    fn configure(&self, peer: &End<'_>) -> Result<()> {
        let (link, mac) = (self.name, self.mac());
        let ip = |command: String| self.namespace.ip(&command);
        ip(format!("link set {link} address {mac} mtu 1500"))?;
        // No link-local addresses: nothing but the workload is on the links.
        ip(format!("link set {link} addrgenmode none"))?;
        let [v4, v6] = self.addresses();
        ip(format!("addr add {v4}/24 dev {link}"))?;
        ip(format!("addr add {v6}/64 dev {link} nodad"))?;
        ip(format!("link set {link} up"))?;
        let mac = peer.mac();
        for address in peer.addresses() {
            ip(format!("neigh replace {address} lladdr {mac} dev {link}"))?;
        }
        Ok(())
    }
}
