//! Netlink (NETLINK_ROUTE), in the network namespace of the thread that opens it.

use anyhow::Context;
use rtnetlink::Handle;
use tokio::runtime::{Builder, Runtime};

/// An open socket.
pub struct Netlink {
    runtime: Runtime,
    /// Asks.
    pub handle: Handle,
}

impl Netlink {
    pub fn open() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("starting the runtime for netlink")?;
        let inside = runtime.enter();
        let (connection, handle, _) =
            rtnetlink::new_connection().context("opening netlink (NETLINK_ROUTE)")?;
        drop(inside);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// What comes of this; netlink goes on meanwhile, and only meanwhile.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }
}
