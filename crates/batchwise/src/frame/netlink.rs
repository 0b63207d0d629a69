//! Netlink (NETLINK_ROUTE), in the network namespace of the thread that opens it.

use std::io;

use anyhow::Context;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{Handle, MulticastGroup};
use tokio::runtime::{Builder, Runtime};

/// An open socket.
pub struct Netlink {
    runtime: Runtime,
    /// Asks.
    pub handle: Handle,
}

/// What the kernel tells unasked.
pub type News = BoxStream<'static, RouteNetlinkMessage>;

impl Netlink {
    pub fn open() -> anyhow::Result<Self> {
        Self::listening(&[])
            .map(|(netlink, _)| netlink)
            .context("opening netlink (NETLINK_ROUTE)")
    }

    /// With what happens to these.
    pub fn listening(groups: &[MulticastGroup]) -> io::Result<(Self, News)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (connection, handle, news) = rtnetlink::new_multicast_connection(groups)?;
        drop(inside);
        runtime.spawn(connection);
        let news = news.filter_map(async |(message, _)| match message.payload {
            NetlinkPayload::InnerMessage(news) => Some(news),
            _ => None,
        });
        Ok((Self { runtime, handle }, news.boxed()))
    }

    /// What comes of this; netlink goes on meanwhile, and only meanwhile.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }
}
