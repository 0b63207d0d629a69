//! What an agent tells Prometheus: names, types, labels.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use batchwise_testbed::host::Host;
use batchwise_testbed::stage::PATIENCE;
use batchwise_testbed::stage::scrape::METRICS;

use crate::shape::{hold_all, is_word};

/// Waits until an agent at the host serves all metrics that were recorded.
pub fn hold_metrics(name: &str, host: &Host) {
    hold_all(name, || {
        let answer = get(host, "/metrics").unwrap_or_default();
        let other = get(host, "/elsewhere").unwrap_or_default();
        let mut entries = entries(&answer);
        entries.insert(format!("elsewhere: {}", status(&other)));
        entries
    });
}

/// What the agent at a host answers; nothing while it does not.
fn get(host: &Host, path: &str) -> Option<String> {
    let address: SocketAddr = METRICS.parse().expect("an address");
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    host.inside(ask).ok()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// The status, the type of the content, each metric's type, and each sample with the names of its
/// labels, and with their values where these are words.
fn entries(answer: &str) -> BTreeSet<String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let mut entries = BTreeSet::from([format!("status: {}", status(answer))]);
    let head = head.to_lowercase();
    let content = head.lines().filter(|l| l.starts_with("content-type:"));
    entries.extend(content.map(str::to_owned));
    for line in body.lines() {
        if line.starts_with("# TYPE ") || line.starts_with("# UNIT ") || line == "# EOF" {
            entries.insert(line.to_owned());
        } else if !line.starts_with('#') {
            let (sample, _) = line.rsplit_once(' ').unwrap_or((line, ""));
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let mut labels: Vec<_> = labels
                .trim_end_matches('}')
                .split("\",")
                .filter_map(|l| l.split_once("=\""))
                .map(|(label, value)| match value.trim_end_matches('"') {
                    value if is_word(value) => format!("{label}={value}"),
                    _ => label.to_owned(),
                })
                .collect();
            labels.sort();
            entries.insert(format!("{name}{{{}}}", labels.join(",")));
        }
    }
    entries
}
