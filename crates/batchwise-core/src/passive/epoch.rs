//! A closed epoch, and whose it is.

use core::net::{IpAddr, SocketAddr};

use super::{Estimate, Gaps};

/// The transport of a flow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP, and with it QUIC.
    Udp,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where packets come from.
    pub client: SocketAddr,
    /// Where they go.
    pub server: SocketAddr,
    /// By what.
    pub transport: Transport,
    /// Index of the backend that a load balancer sends the packets to; 0: nobody does.
    pub backend: u16,
}

/// A closed epoch of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Whose; `None` when the event that named it was lost.
    pub tuple: Option<Tuple>,
    /// ns of the capture's clock, the packet that opened it.
    pub start: u64,
    /// ns, when it was closed.
    pub end: u64,
    /// What it says.
    pub estimate: Estimate,
    /// What it is made of.
    pub gaps: Gaps,
}

/// An address that packets carry as 16 bytes: IPv4 is kept as IPv4-mapped IPv6.
pub fn address(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from(bytes).to_canonical()
}
