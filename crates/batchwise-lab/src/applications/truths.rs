//! What is true of a load: the log of its client, and a capture at the client's link.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::budget::clients::Truth;
use crate::passive::capture;
use crate::stats::quantile;
use crate::tails::wire::{self, Packet};

/// What a log says of a request that was not answered, in the place of its status.
const UNANSWERED: &str = "-1";

/// How a capture tells requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// One at a time on a connection.
    Turns,
    /// All of so many bytes, and their answers, in order.
    Equal { request: u64, answer: u64 },
    /// In HTTP/2's streams.
    Streams,
}

/// A request, ns: when it left its client, and when all of its answer had come.
pub type Answered = (u64, u64);

impl Asks {
    /// The requests in a capture.
    pub fn of_capture(self, capture: &Path, port: u16) -> Result<Vec<Answered>> {
        match self {
            Self::Streams => capture::streams(capture, port),
            Self::Turns => {
                let mut turns = Turns::default();
                wire::each(capture, port, |client, packet| turns.see(client, &packet))?;
                Ok(turns.over)
            }
            Self::Equal { request, answer } => {
                let mut connections: HashMap<_, Vec<_>> = HashMap::new();
                wire::each(capture, port, |client, packet| {
                    connections.entry(client).or_default().push(packet);
                })?;
                let of = |packets: &Vec<_>| equal(packets, request, answer);
                let all: Option<Vec<_>> = connections.values().map(of).collect();
                Ok(all.context("a capture lacks packets")?.concat())
            }
        }
    }
}

/// Requests and answers of these lengths, told apart from a connection's end on, when all is answered: what it
/// began with may have been of other lengths.
fn equal(packets: &[Packet], request: u64, answer: u64) -> Option<Vec<Answered>> {
    let [asked, answered] = [false, true].map(|server| wire::follow(packets, server));
    let (asked, answered) = (asked?.0, answered?.0);
    let (mut asks, mut answers) = (asked.last()?.0, answered.last()?.0);
    let at = |progress: &wire::Progress, upto| {
        progress[progress.partition_point(|(end, _)| *end < upto)].1
    };
    let mut found = Vec::new();
    while asks >= request && answers >= answer {
        found.push((at(&asked, asks), at(&answered, answers)));
        (asks, answers) = (asks - request, answers - answer);
    }
    Some(found)
}

/// Latencies (ns) of a log, and how many requests were never answered. A line is a request; its third
/// column says how long it took, in µs. The first tenth, while the load begins, is left out.
pub fn of_log(text: &str) -> Result<(Vec<f64>, usize)> {
    let (mut latencies, mut unanswered) = (Vec::new(), 0);
    for line in text.lines() {
        let columns = line.split_whitespace().skip(1).take(2);
        let columns: Vec<_> = columns.collect();
        let [status, took] = columns[..] else {
            bail!("a line of a log has no third column: {line:?}");
        };
        if status == UNANSWERED {
            unanswered += 1;
            continue;
        }
        let took: f64 = took
            .parse()
            .with_context(|| format!("in a log: {line:?}"))?;
        latencies.push(took * 1e3);
    }
    latencies.drain(..latencies.len() / 10);
    Ok((latencies, unanswered))
}

/// Of these latencies, which are all of the time from the one to the other.
pub fn truth(latencies: &[f64], from_ts_ns: u64, to_ts_ns: u64) -> Truth {
    let count = latencies.len() as f64;
    Truth {
        from_ts_ns,
        to_ts_ns,
        rps: count * 1e9 / (to_ts_ns - from_ts_ns) as f64,
        mean_ns: (count > 0.0).then(|| latencies.iter().sum::<f64>() / count),
        p50_ns: quantile(latencies, 0.5),
        p99_ns: quantile(latencies, 0.99),
        why_invalid: Vec::new(),
    }
}

/// Turns of connections, as they come: from the first segment of what a client sends to the last of
/// what the server answers before the client sends again.
#[derive(Default)]
struct Turns {
    /// By the client's port, ns: when the turn began, and the last segment of its answer.
    under_way: HashMap<u16, (u64, Option<u64>)>,
    over: Vec<Answered>,
}

impl Turns {
    fn see(&mut self, port: u16, packet: &Packet) {
        let turn = self.under_way.get_mut(&port);
        match (packet.from_server, turn) {
            (true, Some((_, answered))) => *answered = Some(packet.at_ns),
            (false, Some((_, None))) | (true, None) => {}
            (false, turn) => {
                let ended = turn.and_then(|(began, answered)| Some((*began, (*answered)?)));
                self.over.extend(ended);
                self.under_way.insert(port, (packet.at_ns, None));
            }
        }
    }
}

/// Of those that lie inside the time.
pub fn captured(all: &[Answered], from: u64, to: u64) -> Truth {
    let inside = all.iter().filter(|of| of.0 >= from && of.1 <= to);
    let inside = inside.map(|(began, ended)| ended.saturating_sub(*began) as f64);
    truth(&inside.collect::<Vec<_>>(), from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_h2load_of_pgbench_and_of_ours_have_the_time_in_their_third_column() {
        let h2load = "1795325027123456\t200\t285\n".repeat(9) + "1795325027123956\t200\t290\n";
        let (latencies, unanswered) = of_log(&h2load).unwrap();
        assert_eq!((latencies.len(), unanswered), (9, 0), "a tenth is left out");
        assert_eq!(latencies[8], 290e3);
        assert_eq!(
            of_log("0 199 2241 0 1175850568 995598").unwrap().0,
            [2241e3]
        );
        let ours = "5\t200\t43.5\n7\t-1\t9000000.0\n";
        assert_eq!(of_log(ours).unwrap(), (vec![43_500.0], 1));
        assert!(of_log("nonsense").is_err() && of_log("1\t200\tsoon").is_err());
    }

    #[test]
    fn a_turn_is_from_a_clients_first_segment_to_the_servers_last_before_the_next() {
        let mut turns = Turns::default();
        let of_two = [
            (1, true, 5), // an answer to nothing that was seen
            (1, false, 10),
            (2, false, 11),
            (1, false, 12), // the request's second segment
            (1, true, 20),
            (1, true, 30),
            (2, true, 31),
            (1, false, 40),
            (1, true, 45), // nobody knows yet that this was all
        ];
        for (port, from_server, at_ns) in of_two {
            let (sequence, length, begins) = (0, 1, None);
            let packet = Packet {
                at_ns,
                from_server,
                sequence,
                length,
                begins,
            };
            turns.see(port, &packet);
        }
        assert_eq!(turns.over, [(10, 30)]);
        assert_eq!(captured(&turns.over, 0, 40).mean_ns, Some(20.0));
        assert_eq!(captured(&turns.over, 11, 40).mean_ns, None);
    }

    #[test]
    fn requests_of_one_length_are_told_apart_from_the_end_on() {
        let packet = |from_server, sequence, length, at_ns| Packet {
            at_ns,
            from_server,
            sequence,
            length,
            begins: None,
        };
        let packets = [
            packet(false, 0, 9, 1), // a greeting
            packet(true, 0, 3, 2),
            packet(false, 9, 40, 10), // two requests
            packet(false, 49, 20, 11),
            packet(true, 3, 5, 15),
            packet(true, 8, 10, 20),
        ];
        let found = equal(&packets, 20, 5).unwrap();
        assert_eq!(found, [(11, 20), (10, 20), (10, 15)]);
    }
}
