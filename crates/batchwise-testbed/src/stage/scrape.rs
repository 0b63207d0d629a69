//! Metrics as Prometheus asks for them.

use std::io::{Read, Write};

use crate::host::Host;

use super::connect;

/// Where agents under test serve them, each in its host's namespace.
pub const METRICS: &str = "127.0.0.1:9464";

/// The whole answer, its head included.
pub fn scrape(host: &Host, address: &str) -> String {
    let mut stream = connect(host, address.parse().expect("an address"));
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
