//! Where packets to a backend go next, judged by what the kernel knows of links, routes and
//! neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use batchwise_bpf::balance::Method;

mod follower;
mod kernel;

pub use follower::{Follower, ask};
pub use kernel::{Kernel, Wanted};

/// MTU of Ethernet, bytes of IP: frames of no more have one part, whatever the driver.
pub const ETHERNET: u32 = 1500;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// Its own MAC address; none: it has no Ethernet header.
    pub mac: Option<[u8; 6]>,
    /// Bytes of IP.
    pub mtu: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The address is this machine's own.
    pub local: bool,
    pub ifindex: u32,
    /// The router, unless the address is on the link.
    pub gateway: Option<IpAddr>,
    /// What packets from here have as their source.
    pub source: Option<IpAddr>,
    /// Of the route, where it has one of its own; bytes of IP.
    pub mtu: Option<u32>,
}

/// What the kernel knows at a moment.
#[derive(Clone, Debug, Default)]
pub struct NetworkState {
    /// By index.
    pub links: BTreeMap<u32, Link>,
    /// MAC addresses by interface and address.
    pub neighbours: BTreeMap<(u32, IpAddr), [u8; 6]>,
    /// Routes to the addresses that were asked for; an error: there is none.
    pub routes: BTreeMap<IpAddr, Result<Route, String>>,
    /// Interfaces of these routes by which clients' packets cannot leave.
    pub closed: BTreeSet<u32>,
    /// Interfaces of these routes by which long packets of clients cannot leave: where they arrive, by
    /// an interface with a larger MTU than Ethernet's, and what that is.
    pub narrow: BTreeMap<u32, (String, u32)>,
}

/// Where packets to a backend go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    pub ifindex: u32,
    pub interface: String,
    pub own_mac: [u8; 6],
    /// The next station's, when it is known.
    pub mac: Option<[u8; 6]>,
    /// The next station.
    pub station: IpAddr,
    /// Outer source of encapsulated packets.
    pub source: IpAddr,
    /// Bytes of IP.
    pub mtu: u16,
}

impl NextHop {
    /// The same way, with the MAC address that the station had `before` while the kernel has
    /// forgotten it, which does not use it itself.
    pub fn remembering(self, before: Option<&Self>) -> Self {
        let same = before.filter(|b| b.station == self.station && b.ifindex == self.ifindex);
        Self {
            mac: self.mac.or_else(|| same.and_then(|b| b.mac)),
            ..self
        }
    }
}

impl NetworkState {
    /// The way to `address` by `method`.
    pub fn way(&self, address: IpAddr, method: Method) -> Result<NextHop, String> {
        let route = match self.routes.get(&address) {
            Some(Ok(route)) => route,
            Some(Err(why)) => {
                return Err(format!(
                    "there is no route to {address} ({why}): add one with `ip route add`"
                ));
            }
            None => return Err(format!("the route to {address} is not known yet")),
        };
        if route.local {
            return Err(format!(
                "{address} is an address of this machine: give another machine's"
            ));
        }
        if let (Some(gateway), Method::L2) = (route.gateway, method) {
            return Err(format!(
                "{address} is behind the router {gateway}, and method \"l2\" needs a common link: \
                 use method = \"ipip\""
            ));
        }
        let Some(link) = self.links.get(&route.ifindex) else {
            return Err(format!(
                "the interface of the route to {address} has gone: look at `ip route get {address}`"
            ));
        };
        let Some(own_mac) = link.mac else {
            return Err(format!(
                "{} is no Ethernet interface: packets to {address} must leave by one",
                link.name
            ));
        };
        if self.closed.contains(&route.ifindex) {
            return Err(format!(
                "packets cannot leave by {0} to {address}: its driver transmits for no XDP program of \
                 another interface. Use an interface whose driver does (no VLAN, bridge or macvlan on \
                 top of one), or add {0} to `interfaces`, which some drivers need; a veth needs an XDP \
                 program or GRO at its peer (`ethtool -K PEER gro on`)",
                link.name
            ));
        }
        if let Some((arriving, mtu)) = self.narrow.get(&route.ifindex) {
            return Err(format!(
                "long packets cannot leave by {0} to {address}: clients' may have {mtu} bytes (MTU of \
                 {arriving}), XDP has long ones in several parts, and the driver of {0} transmits none \
                 of these for a program of another interface. Use an interface whose driver does \
                 (NETDEV_XDP_ACT_NDO_XMIT_SG), or `ip link set dev {arriving} mtu {ETHERNET}`",
                link.name
            ));
        }
        let station = route.gateway.unwrap_or(address);
        let mtu = route.mtu.unwrap_or(u32::MAX).min(link.mtu);
        let nowhere: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Ok(NextHop {
            ifindex: route.ifindex,
            interface: link.name.clone(),
            own_mac,
            mac: self.neighbours.get(&(route.ifindex, station)).copied(),
            station,
            source: route.source.unwrap_or(nowhere),
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        })
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|l| l.name == name)
    }
}

/// Bytes that encapsulation adds to a packet.
pub const fn overhead(method: Method, backend: IpAddr) -> u32 {
    match (method, backend) {
        (Method::L2, _) => 0,
        (Method::Ipip, IpAddr::V4(_)) => 20,
        (Method::Ipip, IpAddr::V6(_)) => 40,
    }
}

/// The interface that packets to a service's `address` leave by, with its index; none if it has gone,
/// or if nothing leads there and health is not `checked`. An error: the address is this machine's, or
/// nothing leads there; with the remedy.
pub fn service_route(
    known: &NetworkState,
    address: IpAddr,
    checked: bool,
) -> Result<Option<(u32, &Link)>, String> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match known.routes.get(&address) {
        Some(Ok(route)) if route.local => Err(format!(
            "{address} is an address of this machine, which would answer clients itself: remove it \
             here (`ip address del {address}/{bits} dev IF`); only the backends have it, on lo"
        )),
        Some(Ok(route)) => Ok(known.links.get(&route.ifindex).map(|l| (route.ifindex, l))),
        _ if !checked => Ok(None),
        Some(Err(why)) => Err(format!(
            "there is no route to {address} ({why}), which health checks take: add one that needs no \
             neighbour, `ip link add bw-vip type dummy && ip link set bw-vip up && ip route add \
             {address}/{bits} dev bw-vip`, or use check = \"none\""
        )),
        None => Err(format!("the route to {address} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "10.0.0.2";
    const FAR: &str = "10.9.0.2";
    const OWN: &str = "10.0.0.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn known() -> NetworkState {
        let link = Link {
            name: "eth0".to_owned(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
        };
        let route = Route {
            ifindex: 3,
            source: Some(ip(OWN)),
            ..Route::default()
        };
        let far = Route {
            gateway: Some(ip("10.0.0.254")),
            mtu: Some(1400),
            ..route.clone()
        };
        let own = Route {
            local: true,
            ..route.clone()
        };
        NetworkState {
            links: [(3, link)].into(),
            neighbours: [
                ((3, ip(HERE)), [2, 0, 0, 0, 0, 2]),
                ((3, ip("10.0.0.254")), [2, 0, 0, 0, 0, 9]),
            ]
            .into(),
            routes: [
                (ip(HERE), Ok(route)),
                (ip(FAR), Ok(far)),
                (ip(OWN), Ok(own)),
                (ip("10.8.0.1"), Err("Network is unreachable".to_owned())),
            ]
            .into(),
            ..NetworkState::default()
        }
    }

    #[test]
    fn a_neighbour_is_reached_by_its_own_mac_address() {
        let way = known().way(ip(HERE), Method::L2).expect("a way");
        assert_eq!(way.mac, Some([2, 0, 0, 0, 0, 2]));
        assert_eq!((way.mtu, way.source), (1500, ip(OWN)));
    }

    #[test]
    fn a_distant_backend_is_reached_by_its_router_and_the_routes_mtu_and_only_encapsulated() {
        let way = known().way(ip(FAR), Method::Ipip).expect("a way");
        assert_eq!((way.mac, way.mtu), (Some([2, 0, 0, 0, 0, 9]), 1400));
    }

    #[test]
    fn what_is_no_way_is_refused_with_the_remedy() {
        let open = known();
        let (mut closed, mut narrow) = (known(), known());
        closed.closed.insert(3);
        narrow.narrow.insert(3, ("jumbo0".to_owned(), 9000));
        for (known, address, words) in [
            (&open, FAR, ["router 10.0.0.254", "\"ipip\""]),
            (&open, OWN, ["address of this machine", "another machine's"]),
            (&open, "10.8.0.1", ["no route", "`ip route add`"]),
            (&closed, HERE, ["by eth0", "`interfaces`"]),
            (
                &narrow,
                HERE,
                ["by eth0", "`ip link set dev jumbo0 mtu 1500`"],
            ),
        ] {
            let error = known.way(ip(address), Method::L2).expect_err(address);
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn a_service_at_an_own_address_is_refused_and_one_without_route_only_if_it_is_checked() {
        let known = known();
        assert!(service_route(&known, ip(OWN), false).is_err());
        let lost = ip("10.8.0.1");
        assert_eq!(service_route(&known, lost, false), Ok(None));
        let error = service_route(&known, lost, true).expect_err("no route");
        assert!(error.contains("type dummy"), "{error}");
    }

    #[test]
    fn a_neighbour_without_entry_has_a_way_without_mac_address() {
        let mut known = known();
        known.neighbours.clear();
        let way = known.way(ip(HERE), Method::L2).expect("a way");
        assert_eq!(way.mac, None);
    }

    #[test]
    fn a_mac_address_is_remembered_only_for_the_same_station_at_the_same_interface() {
        let known = known();
        let way = known.way(ip(HERE), Method::L2).expect("a way");
        let silent = NextHop {
            mac: None,
            ..way.clone()
        };
        assert_eq!(silent.clone().remembering(Some(&way)).mac, way.mac);
        assert_eq!(silent.clone().remembering(None).mac, None);
        for other in [
            NextHop {
                station: ip(FAR),
                ..way.clone()
            },
            NextHop {
                ifindex: 4,
                ..way.clone()
            },
        ] {
            assert_eq!(silent.clone().remembering(Some(&other)).mac, None);
        }
    }
}
