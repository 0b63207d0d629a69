//! Where the agent sees both ends of all of a service's connections: what the client's end says of latency is what
//! users feel, and the server's line says it, too.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use batchwise_bpf::Connection;
use batchwise_core::sense::report::{Line, Side, Unit};

/// A set of connections: how many, and the sum of their hashes, so that two sets can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set {
    connections: u64,
    hashes: u64,
}

impl Set {
    /// Adds one, by either end.
    pub fn add(&mut self, c: &Connection) {
        let mut ends = [c.local, c.remote];
        ends.sort_unstable();
        // each namespace has a loopback of its own
        let within = c.local.ip().is_loopback().then_some(c.netns);
        let mut hasher = DefaultHasher::new();
        (ends, within).hash(&mut hasher);
        self.connections += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

/// Makes lines of servers agree with those of their clients; `sets` are the connections of each line.
pub fn agree(lines: &mut [Line], sets: &[Set]) {
    let may = |line: &Line| line.unit == Unit::Sends && line.estimator.is_one_sided();
    let of_clients = lines.iter().zip(sets);
    let of_clients = of_clients.filter(|(line, set)| {
        let known = line.side == Side::Client && line.latency_ns.total.is_some();
        known && may(line) && set.connections > 0
    });
    let clients: HashMap<Set, Line> = of_clients.map(|(line, set)| (*set, line.clone())).collect();
    let servers = lines.iter_mut().zip(sets);
    for (line, set) in servers.filter(|(line, _)| line.side == Side::Server && may(line)) {
        let Some(client) = clients.get(set) else {
            continue;
        };
        line.estimator = client.estimator;
        line.confidence = client.confidence;
        line.why.clone_from(&client.why);
        (line.tails_ns, line.matched) = (client.tails_ns, client.matched);
        line.stderr_ns.total = client.stderr_ns.total;
        let latency = &mut line.latency_ns;
        latency.total = client.latency_ns.total;
        let rest = latency.total.zip(latency.turnaround);
        latency.network = rest.map(|(total, turnaround)| total.saturating_sub(turnaround));
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use batchwise_core::sense::report::{Estimator, Latency};

    fn line(side: Side, total: u64) -> Line {
        Line {
            side,
            estimator: Estimator::Turns,
            latency_ns: Latency {
                network: Some(total / 2),
                turnaround: Some(10_000),
                total: Some(total),
            },
            ..samples::local()
        }
    }

    fn set(connections: u64, hashes: u64) -> Set {
        Set {
            connections,
            hashes,
        }
    }

    #[test]
    fn a_server_whose_clients_are_all_seen_says_what_they_feel() {
        let mut lines = [line(Side::Client, 300_000), line(Side::Server, 30_000)];
        agree(&mut lines, &[set(2, 7), set(2, 7)]);
        let told = lines[1].latency_ns;
        assert_eq!(told.total, Some(300_000));
        assert_eq!(
            (told.network, told.turnaround),
            (Some(290_000), Some(10_000))
        );
    }

    #[test]
    fn a_server_that_has_other_clients_too_says_what_it_sees() {
        let mut lines = [line(Side::Client, 300_000), line(Side::Server, 30_000)];
        agree(&mut lines, &[set(2, 7), set(3, 9)]);
        assert_eq!(lines[1], line(Side::Server, 30_000));
    }
}
