//! What Prometheus sees of marks and of admission. An agent does one of both, and has the families of that.

use super::report::{AdmitLine, MarkLine};
use crate::frame::metrics::{Family, Labels, Metrics, alone};

#[derive(Debug, Default)]
pub struct BurstMetrics {
    pub mark: Option<MarkLine>,
    pub admit: Option<AdmitLine>,
}

impl BurstMetrics {
    fn of_mark<T>(&self, samples: impl Fn(&MarkLine) -> Vec<(Labels, T)>) -> Vec<(Labels, T)> {
        self.mark.as_ref().map(samples).unwrap_or_default()
    }

    fn of_queue<T>(&self, samples: impl Fn(&AdmitLine) -> Vec<(Labels, T)>) -> Vec<(Labels, T)> {
        self.admit.as_ref().map(samples).unwrap_or_default()
    }
}

fn labelled<T>(
    label: &'static str,
    all: impl IntoIterator<Item = (String, T)>,
) -> Vec<(Labels, T)> {
    let samples = all.into_iter();
    samples
        .map(|(value, n)| (vec![(label, value)], n))
        .collect()
}

impl Metrics for BurstMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::counter("burst_begun", "Bursts whose first packet was marked", |m| {
            m.of_mark(|line| alone(line.bursts))
        }),
        Family::counter(
            "burst_marked_packets",
            "Marked packets by the segments that their mark says are left; a GSO buffer is one packet",
            |m| {
                m.of_mark(|line| {
                    let classes = line.classes.iter();
                    labelled(
                        "segments",
                        classes.map(|c| (c.segments.to_string(), c.packets)),
                    )
                })
            },
        ),
        Family::counter(
            "burst_unmarked_packets",
            "Packets that were not marked, by the reason",
            |m| {
                m.of_mark(|line| {
                    let reasons = line.unmarked().into_iter();
                    labelled("reason", reasons.map(|(why, n)| (why.to_owned(), n)))
                })
            },
        ),
        Family::counter(
            "burst_cleared_packets",
            "Packets whose mark was taken off at the border",
            |m| {
                let queue = m.admit.as_ref().map(|line| line.counts.cleared);
                let cleared = m.mark.as_ref().map(|line| line.cleared).or(queue);
                cleared.map(alone).unwrap_or_default()
            },
        ),
        Family::counter(
            "burst_decisions",
            "Bursts that were admitted or refused",
            |m| {
                m.of_queue(|line| {
                    let counts = &line.counts;
                    let all = [
                        ("admitted", counts.bursts_admitted),
                        ("refused", counts.bursts_refused),
                    ];
                    labelled("verdict", all.map(|(verdict, n)| (verdict.to_owned(), n)))
                })
            },
        ),
        Family::counter(
            "burst_router_packets",
            "Packets by what was decided about them behind the first of a burst, or without one",
            |m| {
                m.of_queue(|line| {
                    labelled(
                        "fate",
                        line.counts.packets().map(|(fate, n)| (fate.to_owned(), n)),
                    )
                })
            },
        ),
        Family::counter(
            "burst_queue_drops",
            "Packets that the queue itself dropped",
            |m| m.of_queue(|line| alone(line.queue_drops)),
        ),
        Family::counter(
            "burst_lost_leases",
            "Leases that ended before all of their burst had come",
            |m| m.of_queue(|line| alone(line.counts.leases_lost)),
        ),
        Family::counter(
            "burst_lost_bytes",
            "Bytes that were reserved and did not come in time",
            |m| m.of_queue(|line| alone(line.counts.lost_bytes)),
        ),
        Family::gauge(
            "burst_reserved_bytes",
            "Bytes that are reserved and have not come yet",
            |m| m.of_queue(|line| alone(line.counts.reserved_bytes as f64)),
        ),
        Family::gauge("burst_queue_bytes", "Bytes in the queue", |m| {
            m.of_queue(|line| alone(line.queue_bytes as f64))
        }),
        Family::gauge(
            "burst_queue_highest_bytes",
            "The most that a packet found in the queue in the last interval, bytes",
            |m| m.of_queue(|line| alone(line.queue_highest_bytes as f64)),
        ),
        Family::gauge(
            "burst_queue_limit_bytes",
            "Bytes that the queue takes",
            |m| m.of_queue(|line| alone(line.limit_bytes as f64)),
        ),
        Family::gauge(
            "burst_sources",
            "Sources of marked packets that are known",
            |m| m.of_queue(|line| alone(line.counts.sources as f64)),
        ),
    ];
}

#[cfg(test)]
impl crate::frame::metrics::testing::Example for BurstMetrics {
    fn example() -> Self {
        use batchwise_bpf::burst::{Counts, MarkFates};
        Self {
            mark: Some(MarkLine::new(1, String::new(), &MarkFates::default())),
            admit: Some(AdmitLine {
                ts_ns: 1,
                interface: String::new(),
                limit_bytes: 1,
                rate_bits_per_s: 1,
                queue_bytes: 0,
                queue_packets: 0,
                queue_highest_bytes: 0,
                queue_drops: 0,
                counts: Counts::default(),
            }),
        }
    }
}
