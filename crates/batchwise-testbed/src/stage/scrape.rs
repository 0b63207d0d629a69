//! Metrics as Prometheus asks for them.

use super::PATIENCE;
use crate::host::Host;
use crate::metrics;

/// Where agents under test serve them, each in its host's namespace.
pub const METRICS: &str = "127.0.0.1:9464";

/// The whole answer, its head included.
pub fn scrape(host: &Host, address: &str) -> String {
    let address = address.parse().expect("an address");
    metrics::scrape(host, address, PATIENCE).expect("an answer")
}
