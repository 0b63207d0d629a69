//! A route of its own to one address, with `quickack`: a copy of the route that leads there, so that no other address
//! is served differently and nobody's route is changed. It follows the one that it was copied from.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::Socket;
use rtnetlink::sys::protocols::NETLINK_ROUTE;

use crate::frame::netlink::Netlink;

/// How `ip route` shows whose it is: `proto 77`.
const OURS: RouteProtocol = RouteProtocol::Other(77);

/// In one network namespace, to one address.
pub struct HostRoute {
    netlink: Netlink,
    news: News,
    to: IpAddr,
    /// As it was, or is to be, made.
    route: RouteMessage,
}

impl HostRoute {
    /// Finds out how it has to be, in the calling thread's network namespace.
    pub fn prepare(to: IpAddr) -> io::Result<Self> {
        let news = News::open()?;
        let netlink = open()?;
        let route = copy(to, &matched(&netlink, to)?)?;
        Ok(Self {
            netlink,
            news,
            to,
            route,
        })
    }

    /// The table that it is in.
    pub fn table(&self) -> u32 {
        table_of(&self.route)
    }

    /// Makes it. One that is there already is someone else's.
    pub fn make(&self) -> io::Result<()> {
        let request = self.netlink.handle.route().add(self.route.clone());
        self.netlink
            .wait(request.execute())
            .map_err(io::Error::other)
    }

    /// Whether it is still the one that is taken; where the route that it is a copy of may have changed, it is copied anew.
    pub fn follow(&mut self) -> io::Result<bool> {
        if matched(&self.netlink, self.to)?.header.protocol != OURS {
            return Ok(false);
        }
        if self.news.may_concern(self.to) {
            remove(&self.netlink, self.to, self.table())?;
            let new = copy(self.to, &matched(&self.netlink, self.to)?)?;
            if table_of(&new) != self.table() {
                return Ok(false);
            }
            self.route = new;
            self.make()?;
        }
        Ok(true)
    }
}

/// What the kernel tells of routes and rules, with a socket of its own: answers wait behind nothing.
struct News(Socket);

impl News {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in [
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
        ] {
            socket.add_membership(group as u32)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Whether anything was told since that may have to do with this address. What was missed may (ENOBUFS).
    fn may_concern(&self, to: IpAddr) -> bool {
        let mut concerns = false;
        loop {
            match self.0.recv_from_full() {
                Ok((bytes, _)) => concerns |= concern(&bytes, to),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return concerns,
                Err(_) => concerns = true,
            }
        }
    }
}

fn concern(news: &[u8], to: IpAddr) -> bool {
    match NetlinkMessage::deserialize(news).map(|message| message.payload) {
        Ok(NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route),
        )) => route.header.protocol != OURS && leads_to(&route, to),
        _ => true,
    }
}

/// Removes it from a table, in the calling thread's network namespace. One that is not there needs nothing.
pub fn remove_from(table: u32, to: IpAddr) -> io::Result<()> {
    remove(&open()?, to, table)
}

fn open() -> io::Result<Netlink> {
    Netlink::open().map_err(io::Error::other)
}

fn remove(netlink: &Netlink, to: IpAddr, table: u32) -> io::Result<()> {
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        // any (fib_table_delete)
        scope: RouteScope::NoWhere,
        kind: RouteType::Unspec,
        ..header(to)
    };
    let attributes = [
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Table(table),
    ];
    route.attributes.extend(attributes);
    match netlink.wait(netlink.handle.route().del(route).execute()) {
        Err(rtnetlink::Error::NetlinkError(error))
            if error.to_io().raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(())
        }
        done => done.map_err(io::Error::other),
    }
}

/// The route that the kernel takes to an address.
fn matched(netlink: &Netlink, to: IpAddr) -> io::Result<RouteMessage> {
    let mut ask = RouteMessage::default();
    ask.header.address_family = header(to).address_family;
    ask.header.destination_prefix_length = bits(to);
    ask.header.flags = RouteFlags::FibMatch;
    ask.attributes.push(RouteAttribute::Destination(to.into()));
    let found = netlink.wait(async {
        let mut found = std::pin::pin!(netlink.handle.route().get(ask).execute());
        found.try_next().await
    });
    found
        .map_err(io::Error::other)?
        .ok_or_else(|| io::Error::other("the kernel names no route"))
}

/// The same for one address alone, and with `quickack`.
fn copy(to: IpAddr, of: &RouteMessage) -> io::Result<RouteMessage> {
    if of.header.kind != RouteType::Unicast {
        return Err(io::Error::other(format!(
            "the route to {to} is of type {:?}",
            of.header.kind
        )));
    }
    let mut metrics = vec![RouteMetric::QuickAck(1)];
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        table: of.header.table,
        scope: of.header.scope,
        tos: of.header.tos,
        flags: of.header.flags & RouteFlags::Onlink,
        ..header(to)
    };
    // a next hop that is an object of its own says the way
    let is_object = |a: &RouteAttribute| matches!(a, RouteAttribute::NhId(_));
    let has_object = of.attributes.iter().any(is_object);
    for attribute in &of.attributes {
        match attribute {
            RouteAttribute::Metrics(theirs) => {
                let others = theirs
                    .iter()
                    .filter(|m| !matches!(m, RouteMetric::QuickAck(_)));
                metrics.extend(others.cloned());
            }
            RouteAttribute::NhId(_)
            | RouteAttribute::PrefSource(_)
            | RouteAttribute::Realm(_)
            | RouteAttribute::Table(_) => route.attributes.push(attribute.clone()),
            RouteAttribute::Oif(_)
            | RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::EncapType(_)
                if !has_object =>
            {
                route.attributes.push(attribute.clone());
            }
            _ => {}
        }
    }
    let own = [
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Metrics(metrics),
    ];
    route.attributes.extend(own);
    Ok(route)
}

fn header(to: IpAddr) -> RouteHeader {
    RouteHeader {
        address_family: match to {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        },
        destination_prefix_length: bits(to),
        protocol: OURS,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    }
}

fn bits(of: IpAddr) -> u8 {
    if of.is_ipv4() { 32 } else { 128 }
}

fn table_of(route: &RouteMessage) -> u32 {
    let table = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(u32::from(route.header.table))
}

/// Whether a route's prefix has the address in it.
fn leads_to(route: &RouteMessage, to: IpAddr) -> bool {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    };
    let prefix = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Destination(RouteAddress::Inet(a)) => Some(IpAddr::from(*a)),
        RouteAttribute::Destination(RouteAddress::Inet6(a)) => Some(IpAddr::from(*a)),
        _ => None,
    });
    let length = route.header.destination_prefix_length;
    match prefix {
        Some(prefix) if length > 0 => {
            prefix.is_ipv4() == to.is_ipv4()
                && (octets(prefix) ^ octets(to)).leading_zeros() >= u32::from(length)
        }
        _ => route.header.address_family == header(to).address_family,
    }
}
