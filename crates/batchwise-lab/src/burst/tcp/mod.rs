//! A TCP connection: NewReno (RFC 5681, 6582) over selective acknowledgments, an initial window of 10
//! (RFC 6928), in whole segments.

mod loss;
mod receiver;
mod rtt;
mod sender;

pub use receiver::{DELAYED_ACK, Receiver};
pub use sender::{Config, Sender};

use serde::{Deserialize, Serialize};

/// How lost segments are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// RACK and tail loss probes (RFC 8985), as Linux does today.
    Rack,
    /// Three segments behind it (RFC 6675), or a timeout, as in the paper's Linux 3.2.
    Cliff,
}
