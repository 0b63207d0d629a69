//! What the kernel knows of links, neighbours and routes, asked by netlink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::xdp::{self, Features};
use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMetric, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::{ETHERNET, Link, NetworkState, NextHop, Route};
use crate::frame::netlink::Netlink;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Routes to these.
    pub addresses: Vec<IpAddr>,
    /// Interfaces at which clients' packets arrive.
    pub arriving: Vec<String>,
    /// The balancer's program is there already: some drivers transmit for others only then.
    pub attached: bool,
}

pub struct Kernel(Netlink);

impl Kernel {
    /// Opens netlink in the calling thread's network namespace.
    pub fn open() -> anyhow::Result<Self> {
        Netlink::open().map(Self)
    }

    /// What comes of something `within` a time; meanwhile netlink goes on.
    pub fn within<T>(&self, time: Duration, what: impl Future<Output = T>) -> Option<T> {
        let timeout = async { tokio::time::timeout(time, what).await };
        self.0.wait(timeout).ok()
    }

    pub fn know(&self, wanted: &Wanted) -> anyhow::Result<NetworkState> {
        let mut known = self.0.wait(async {
            let mut known = NetworkState {
                links: links(&self.0.handle).await.context("reading interfaces")?,
                neighbours: neighbours(&self.0.handle)
                    .await
                    .context("reading neighbours")?,
                ..NetworkState::default()
            };
            for address in &wanted.addresses {
                let route = route(&self.0.handle, *address).await;
                known.routes.insert(*address, route);
            }
            anyhow::Ok(known)
        })?;
        (known.closed, known.narrow) = unfit(&known, wanted, xdp::features);
        Ok(known)
    }

    /// Makes the kernel ask a station whether it still has its MAC address: one that it heard of not
    /// long ago is not asked otherwise. One that does not answer is forgotten within seconds.
    pub fn probe(&self, way: &NextHop) {
        let Some(mac) = way.mac else {
            return;
        };
        let request = self.0.handle.neighbours().add(way.ifindex, way.station);
        let request = request
            .state(NeighbourState::Probe)
            .link_layer_address(&mac);
        let probed = self.0.wait(async {
            // what an administrator has set is not the kernel's to find out
            if fixed(&self.0.handle, way).await? {
                return Ok(());
            }
            request.replace().execute().await
        });
        if let Err(error) = probed {
            tracing::debug!(station = %way.station, %error, "probing the neighbour");
        }
    }
}

/// Whether a neighbour's MAC address was set for good, or needs none.
async fn fixed(handle: &Handle, way: &NextHop) -> Result<bool, rtnetlink::Error> {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = way.ifindex;
    message.header.family = if way.station.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let station = NeighbourAttribute::Destination(way.station.into());
    message.attributes.push(station);
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNeighbour(message));
    request.header.flags = NLM_F_REQUEST;
    let mut answers = Box::pin(handle.clone().request(request)?);
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(found)) => {
                let state = found.header.state;
                return Ok(matches!(
                    state,
                    NeighbourState::Permanent | NeighbourState::Noarp
                ));
            }
            NetlinkPayload::Error(error) => return Err(rtnetlink::Error::NetlinkError(error)),
            _ => {}
        }
    }
    Ok(false)
}

/// Interfaces of routes that take no packet which an XDP program of another interface sends there; and
/// those that take none of several parts, with whose packets may have them.
fn unfit(
    known: &NetworkState,
    wanted: &Wanted,
    features: impl Fn(u32) -> Option<Features>,
) -> (BTreeSet<u32>, BTreeMap<u32, (String, u32)>) {
    let routes = known.routes.values().flatten();
    let mut exits: BTreeSet<u32> = routes.filter(|r| !r.local).map(|r| r.ifindex).collect();
    exits.retain(|index| {
        let name = known.links.get(index).map(|l| &l.name);
        let arriving = |n| wanted.arriving.contains(n);
        // what leaves where it came is no other's
        match (wanted.attached, &wanted.arriving[..]) {
            (true, [only]) => name != Some(only),
            (true, _) => true,
            (false, _) => !name.is_some_and(arriving),
        }
    });
    // a kernel that does not tell of interfaces with native XDP tells nothing of others
    let arriving = || {
        let links = wanted.arriving.iter();
        links.filter_map(|name| known.links.iter().find(|(_, l)| l.name == *name))
    };
    let told = |index: &u32| features(*index).is_some_and(|f| f.any);
    if exits.is_empty() || !arriving().any(|(index, _)| told(index)) {
        return (BTreeSet::new(), BTreeMap::new());
    }
    let features = exits.iter().filter_map(|i| Some((*i, features(*i)?)));
    let (open, closed): (Vec<_>, Vec<_>) = features.partition(|(_, f)| f.transmits);
    let narrow = open.iter().filter(|(_, f)| !f.transmits_parts);
    let narrow = narrow.filter_map(|(exit, _)| {
        let others = arriving().filter(|(index, _)| *index != exit);
        let (_, widest) = others.max_by_key(|(_, link)| link.mtu)?;
        (widest.mtu > ETHERNET).then(|| (*exit, (widest.name.clone(), widest.mtu)))
    });
    let narrow = narrow.collect();
    (closed.into_iter().map(|(index, _)| index).collect(), narrow)
}

async fn links(handle: &Handle) -> Result<BTreeMap<u32, Link>, rtnetlink::Error> {
    let mut links = BTreeMap::new();
    let mut found = handle.link().get().execute();
    while let Some(message) = found.try_next().await? {
        let mut link = Link::default();
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
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let message = RouteMessageBuilder::<IpAddr>::new().destination_prefix(address, bits);
    let message = message.map_err(|e| e.to_string())?.build();
    let mut found = Box::pin(handle.route().get(message).execute());
    let message = found.try_next().await.map_err(|e| e.to_string())?;
    let message = message.ok_or("the kernel gave no answer")?;
    let mut route = Route {
        local: message.header.kind == RouteType::Local,
        ..Route::default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, mtu: u32) -> Link {
        Link {
            name: name.to_owned(),
            mac: Some([2; 6]),
            mtu,
        }
    }

    /// A backend behind `out`, clients at `in` with an MTU.
    fn narrow(mtu: u32, arriving: &[&str], features: Features) -> BTreeMap<u32, (String, u32)> {
        let route = Route {
            ifindex: 3,
            ..Route::default()
        };
        let backend = IpAddr::from([10, 0, 0, 2]);
        let known = NetworkState {
            links: [(2, link("in", mtu)), (3, link("out", 9000))].into(),
            routes: [(backend, Ok(route))].into(),
            ..NetworkState::default()
        };
        let wanted = Wanted {
            addresses: vec![backend],
            arriving: arriving.iter().map(|&name| name.to_owned()).collect(),
            attached: true,
        };
        let (closed, narrow) = unfit(&known, &wanted, |_| Some(features));
        assert_eq!(
            closed.contains(&3),
            !features.transmits && arriving != ["out"]
        );
        narrow
    }

    #[test]
    fn where_long_packets_arrive_the_exit_must_transmit_frames_of_several_parts() {
        let whole = Features {
            any: true,
            transmits: true,
            transmits_parts: false,
        };
        let parts = Features {
            transmits_parts: true,
            ..whole
        };
        let none = Features {
            transmits: false,
            ..whole
        };
        let long = BTreeMap::from([(3, ("in".to_owned(), 9000))]);
        assert_eq!(narrow(9000, &["in"], whole), long);
        assert_eq!(narrow(9000, &["in", "out"], whole), long);
        let fits = BTreeMap::new();
        assert_eq!(narrow(1500, &["in"], whole), fits);
        assert_eq!(narrow(9000, &["in"], parts), fits);
        assert_eq!(
            narrow(9000, &["out"], whole),
            fits,
            "it leaves where it came"
        );
        assert_eq!(narrow(9000, &["in"], none), fits, "nothing leaves there");
    }
}
