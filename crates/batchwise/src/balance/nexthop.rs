//! Where packets to a backend go next, as the kernel's routes and neighbours have it: asked by
//! netlink, judged here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMetric, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::config::Method;

/// How often routes and neighbours are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Whoever gets a packet at this port drops it; the kernel has asked for the MAC address before.
const DISCARD: u16 = 9;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Its own MAC address; none: it has no Ethernet header.
    pub mac: Option<[u8; 6]>,
    /// Bytes of IP.
    pub mtu: u32,
}

/// A route to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address is this machine's own.
    pub local: bool,
    /// Index of the interface.
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
pub struct Known {
    /// By index.
    pub links: BTreeMap<u32, Link>,
    /// MAC addresses by interface and address.
    pub neighbours: BTreeMap<(u32, IpAddr), [u8; 6]>,
    /// Routes to the addresses that were asked for; an error: there is none.
    pub routes: BTreeMap<IpAddr, Result<Route, String>>,
}

/// Where packets to a backend go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Index of the interface.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Its MAC address.
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

impl Known {
    /// The way to `address` by `method`.
    ///
    /// # Errors
    /// There is none, with the remedy.
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

    /// The interface of this name.
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

/// Makes the kernel ask for the MAC address of `station`.
pub fn ask(station: IpAddr) {
    let any: SocketAddr = match station {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let asked = UdpSocket::bind(any).and_then(|s| s.send_to(&[], (station, DISCARD)));
    if let Err(error) = asked {
        tracing::debug!(%station, %error, "asking for the neighbour");
    }
}

/// Asks the kernel.
pub struct Kernel {
    runtime: tokio::runtime::Runtime,
    handle: Handle,
}

impl Kernel {
    /// Opens netlink in the calling thread's network namespace.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the runtime for netlink")?;
        let inside = runtime.enter();
        let (connection, handle, _) =
            rtnetlink::new_connection().context("opening netlink (NETLINK_ROUTE)")?;
        drop(inside);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// What is known of links, neighbours and the routes to `addresses`.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn know(&self, addresses: &[IpAddr]) -> anyhow::Result<Known> {
        self.runtime.block_on(async {
            let mut known = Known {
                links: links(&self.handle).await.context("reading interfaces")?,
                neighbours: neighbours(&self.handle)
                    .await
                    .context("reading neighbours")?,
                routes: BTreeMap::new(),
            };
            for address in addresses {
                let route = route(&self.handle, *address).await;
                known.routes.insert(*address, route);
            }
            Ok(known)
        })
    }
}

async fn links(handle: &Handle) -> Result<BTreeMap<u32, Link>, rtnetlink::Error> {
    let mut links = BTreeMap::new();
    let mut found = handle.link().get().execute();
    while let Some(message) = found.try_next().await? {
        let mut link = Link {
            name: String::new(),
            mac: None,
            mtu: 0,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Address(mac) => link.mac = mac.try_into().ok(),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                _ => {}
            }
        }
        links.insert(message.header.index, link);
    }
    Ok(links)
}

async fn neighbours(handle: &Handle) -> Result<BTreeMap<(u32, IpAddr), [u8; 6]>, rtnetlink::Error> {
    let mut neighbours = BTreeMap::new();
    let mut found = handle.neighbours().get().execute();
    while let Some(message) = found.try_next().await? {
        if matches!(
            message.header.state,
            NeighbourState::Failed | NeighbourState::Incomplete | NeighbourState::None
        ) {
            continue;
        }
        let (mut address, mut mac) = (None, None);
        for attribute in message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => {
                    address = Some(IpAddr::V4(a));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => {
                    address = Some(IpAddr::V6(a));
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok(),
                _ => {}
            }
        }
        if let (Some(address), Some(mac)) = (address, mac) {
            neighbours.insert((message.header.ifindex, address), mac);
        }
    }
    Ok(neighbours)
}

async fn route(handle: &Handle, address: IpAddr) -> Result<Route, String> {
    let message = match address {
        IpAddr::V4(a) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(a, 32)
            .build(),
        IpAddr::V6(a) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(a, 128)
            .build(),
    };
    let mut found = Box::pin(handle.route().get(message).execute());
    let message = found.try_next().await.map_err(|e| e.to_string())?;
    let message = message.ok_or("the kernel gave no answer")?;
    let mut route = Route {
        local: message.header.kind == RouteType::Local,
        ifindex: 0,
        gateway: None,
        source: None,
        mtu: None,
    };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.ifindex = index,
            RouteAttribute::Gateway(RouteAddress::Inet(a)) => route.gateway = Some(a.into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(a)) => route.gateway = Some(a.into()),
            RouteAttribute::PrefSource(RouteAddress::Inet(a)) => route.source = Some(a.into()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(a)) => route.source = Some(a.into()),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|m| match m {
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    match message.header.kind {
        RouteType::Local | RouteType::Unicast => Ok(route),
        kind => Err(format!("the route is of type {kind:?}")),
    }
}

/// Looks again and again, in a thread of its own.
pub struct Follower {
    addresses: Sender<Vec<IpAddr>>,
    news: Receiver<Known>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins in the calling thread's network namespace.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> anyhow::Result<Self> {
        let (addresses, wanted) = channel::<Vec<IpAddr>>();
        let (tell, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let kernel = Kernel::open()?;
        let run = move || {
            let mut looked_for = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match wanted.recv_timeout(EVERY) {
                    Ok(new) => looked_for = new,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                match kernel.know(&looked_for) {
                    Ok(known) => {
                        if tell.send(known).is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::warn!("routes and neighbours: {error:#}"),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(run)
            .context("starting the thread that follows neighbours")?;
        Ok(Self {
            addresses,
            news,
            stop,
            thread: Some(thread),
        })
    }

    /// Routes to these are looked for from now on.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn follow(&self, addresses: Vec<IpAddr>) -> anyhow::Result<()> {
        let sent = self.addresses.send(addresses);
        sent.map_err(|_| anyhow!("the thread that follows neighbours has ended"))
    }

    /// The newest, if there is any since the last call.
    pub fn news(&self) -> Option<Known> {
        self.news.try_iter().last()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let (closed, _) = channel();
        // dropping the sender wakes the thread
        drop(std::mem::replace(&mut self.addresses, closed));
        if let Some(thread) = self.thread.take() {
            // a panic there has been printed
            let _ = thread.join();
        }
    }
}

/// Whether the machine forwards to `address` at all: what a check through it needs.
///
/// # Errors
/// The address is this machine's, or nothing leads there; with the remedy.
pub fn service_route(
    known: &Known,
    address: IpAddr,
    checked: bool,
) -> Result<Option<Link>, String> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match known.routes.get(&address) {
        Some(Ok(route)) if route.local => Err(format!(
            "{address} is an address of this machine, which would answer clients itself: remove it \
             here (`ip address del {address}/{bits} dev IF`); only the backends have it, on lo"
        )),
        Some(Ok(route)) => Ok(known.links.get(&route.ifindex).cloned()),
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

    fn known() -> Known {
        let link = Link {
            name: "eth0".to_owned(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
        };
        let route = Route {
            local: false,
            ifindex: 3,
            gateway: None,
            source: Some(ip(OWN)),
            mtu: None,
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
        Known {
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
        let error = known().way(ip(FAR), Method::L2).expect_err("not on link");
        assert!(error.contains("router 10.0.0.254"), "{error}");
        assert!(error.contains("\"ipip\""), "{error}");
    }

    #[test]
    fn own_addresses_and_unreachable_ones_are_refused_with_the_remedy() {
        let error = known().way(ip(OWN), Method::L2).expect_err("its own");
        assert!(error.contains("address of this machine"), "{error}");
        let error = known()
            .way(ip("10.8.0.1"), Method::L2)
            .expect_err("no route");
        assert!(error.contains("ip route add"), "{error}");
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
}
