//! What people, programs and Prometheus see of the forwarder and its queue.

use batchwise_bpf::burst::Source;
use batchwise_bpf::burst::forward::Lost;
use ratatui::style::Stylize;
use ratatui::text::Span;
use serde::Serialize;

use super::discipline::Admit;
use super::engine::Counts;
use crate::burst::report::{self, SourceLine};
use crate::frame::clock::wall_clock_ns;
use crate::frame::human;
use crate::frame::metrics::{Family, Metrics, alone};
use crate::frame::rows::{Column, JsonLines, View, name, plain};

/// The line of an interval. The field names are a contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// Always `burst-forward`.
    kind: &'static str,
    /// When it was counted, ns since the Unix epoch.
    ts_ns: u64,
    /// Whose frames wait in the queue.
    from: String,
    /// Where they leave.
    to: String,
    /// What finds a place in the queue: `off` (drop-tail), `published`, `bursts`.
    admit: Admit,
    /// Packets that left the queue, since the start.
    forwarded: u64,
    /// Their bytes: those of the frames, 60 at least.
    forwarded_bytes: u64,
    /// Packets a second that left the queue since the last line.
    forwarded_pps: f64,
    /// Packets that went back, since the start.
    returned: u64,
    /// Their bytes.
    returned_bytes: u64,
    /// Bursts that were admitted, since the start.
    bursts_admitted: u64,
    /// Bursts that were refused.
    bursts_refused: u64,
    /// Packets of refused bursts, which were dropped with them.
    burst_packets_dropped: u64,
    /// Other packets that found no room and were dropped, since the start.
    dropped: u64,
    /// Packets on their way back that found no room.
    return_dropped: u64,
    /// With `--border`: marks that were taken off.
    cleared: u64,
    /// Bytes that are promised to bursts and have not come. Of a queue that is limited in packets, each
    /// counts as one of the longest.
    reserved_bytes: u64,
    /// Packets in the queue.
    queue_packets: u64,
    /// Their bytes.
    queue_bytes: u64,
    /// The most packets that were in the queue, since the start.
    highest_packets: u64,
    /// The most bytes.
    highest_bytes: u64,
    /// Frames that the kernel dropped as the forwarder did not take them in time, since the start.
    lost_ring_full: u64,
    /// Frames that the kernel dropped as no memory was free for them.
    lost_no_frame: u64,
    /// Frames that the kernel dropped for other reasons: too long, or not in the first queue.
    lost_other: u64,
    /// Time in which the link stood still although frames waited, since the forwarder had no CPU, ns since
    /// the start.
    behind_ns: u64,
}

/// What stays the same.
#[derive(Clone, Debug)]
pub struct Setting {
    from: String,
    to: String,
    admit: Admit,
}

impl Setting {
    pub fn new(from: &str, to: &str, admit: Admit) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            admit,
        }
    }
}

/// The forwarder at the end of an interval.
#[derive(Clone, Debug)]
pub struct Report {
    setting: Setting,
    counts: Counts,
    line: Option<Line>,
    sources: Vec<SourceLine>,
}

impl Report {
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            counts: Counts::default(),
            line: None,
            sources: Vec::new(),
        }
    }

    /// What was counted until now, and of sources those with most bursts.
    pub fn update(&mut self, counts: Counts, sources: Vec<Source>, top: usize) {
        let ts_ns = wall_clock_ns();
        self.sources = SourceLine::most(ts_ns, &self.setting.to, sources, top);
        let packets = counts.forwarded.0 - self.counts.forwarded.0;
        let before = self.line.as_ref().map(|line| line.ts_ns);
        let seconds = before.map(|before| ts_ns.saturating_sub(before) as f64 / 1e9);
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        let lost = |of: fn(&Lost) -> u64| counts.lost.iter().map(of).sum::<u64>();
        let Setting { from, to, admit } = self.setting.clone();
        self.line = Some(Line {
            kind: "burst-forward",
            ts_ns,
            from,
            to,
            admit,
            forwarded: counts.forwarded.0,
            forwarded_bytes: counts.forwarded.1,
            forwarded_pps: seconds.map_or(0.0, |seconds| packets as f64 / seconds),
            returned: counts.returned.0,
            returned_bytes: counts.returned.1,
            bursts_admitted: counts.admitted,
            bursts_refused: counts.refused,
            burst_packets_dropped: counts.refused + counts.denied,
            dropped: counts.full,
            return_dropped: counts.return_dropped,
            cleared: counts.cleared,
            reserved_bytes: counts.reserved.into(),
            queue_packets: counts.queued.packets.into(),
            queue_bytes: counts.queued.bytes.into(),
            highest_packets: counts.highest.packets.into(),
            highest_bytes: counts.highest.bytes.into(),
            lost_ring_full: lost(|lost| lost.ring_full),
            lost_no_frame: lost(|lost| lost.no_frame),
            lost_other: lost(|lost| lost.other) + counts.other_queue,
            behind_ns: counts.behind_ns,
        });
        self.counts = counts;
    }

    fn lost(&self) -> u64 {
        let line = self.line.as_ref();
        line.map_or(0, |l| l.lost_ring_full + l.lost_no_frame + l.lost_other)
    }
}

impl View for Report {
    type Row = Line;

    const COLUMNS: &'static [Column<Line>] = &[
        Column::left("way", 20, |line| {
            name(format!("{} → {}", line.from, line.to))
        }),
        Column::right("packets/s", 10, |line| {
            plain(human::rate(line.forwarded_pps))
        }),
        Column::right("queue", 7, |line| plain(line.queue_packets.to_string())),
        Column::right("highest", 8, |line| plain(line.highest_packets.to_string())),
        Column::right("reserved B", 11, |line| {
            plain(line.reserved_bytes.to_string())
        }),
        Column::right("admitted", 9, |line| {
            plain(line.bursts_admitted.to_string())
        }),
        Column::right("refused", 9, |line| plain(line.bursts_refused.to_string())),
        Column::right("dropped", 10, |line| plain(line.dropped.to_string())),
        Column::right("back", 10, |line| plain(line.returned.to_string())),
        Column::right("forwarded", 12, |line| plain(line.forwarded.to_string())),
        Column::right("behind", 9, |line| plain(human::duration(line.behind_ns))),
    ];
    const NAME: &'static str = "burst forward";

    fn rows(&self) -> Vec<&Line> {
        self.line.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        self.line.iter().try_for_each(|line| lines.push(line))?;
        let mut sources = self.sources.iter().cloned();
        sources.try_for_each(|source| lines.push(&report::Line::Source(source)))
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let admit = human::word(&self.setting.admit);
        let most = self.sources.first();
        let most = most.map(|source| format!("most bursts: {}", source.says()).into());
        (
            vec![format!("admits {admit}").dim()],
            most.into_iter().collect(),
        )
    }

    fn warning(&self) -> Option<String> {
        match self.lost() {
            0 => None,
            lost => Some(format!("the kernel dropped {lost} frames before the queue")),
        }
    }
}

/// Counters are sums since the start.
#[derive(Debug, Default)]
pub struct ForwardMetrics(Option<Line>);

impl ForwardMetrics {
    pub fn take(&mut self, report: &Report) {
        self.0.clone_from(&report.line);
    }

    fn each(&self, label: &'static str, of: &[Part]) -> Vec<(Vec<(&'static str, String)>, u64)> {
        let line = self.0.iter();
        line.flat_map(|line| {
            let sample = |(name, of): &Part| (vec![(label, (*name).to_owned())], of(line));
            of.iter().map(sample).collect::<Vec<_>>()
        })
        .collect()
    }

    fn gauge(&self, of: Field) -> Vec<(Vec<(&'static str, String)>, f64)> {
        let line = self.0.iter();
        line.flat_map(|line| alone(of(line) as f64)).collect()
    }
}

/// A number of a line.
type Field = fn(&Line) -> u64;
/// One sample of several: its label's value.
type Part = (&'static str, Field);

impl Metrics for ForwardMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::counter(
            "burst_forward_packets",
            "Packets by what became of them: through the queue, back, or dropped and why",
            |m| {
                m.each(
                    "fate",
                    &[
                        ("forwarded", |l| l.forwarded),
                        ("returned", |l| l.returned),
                        ("dropped", |l| l.dropped),
                        ("dropped_with_burst", |l| l.burst_packets_dropped),
                        ("dropped_on_return", |l| l.return_dropped),
                        ("lost_ring_full", |l| l.lost_ring_full),
                        ("lost_no_frame", |l| l.lost_no_frame),
                        ("lost_other", |l| l.lost_other),
                    ],
                )
            },
        ),
        Family::counter(
            "burst_forward_bytes",
            "Bytes of packets that left the queue, and of those that went back",
            |m| {
                m.each(
                    "fate",
                    &[
                        ("forwarded", |l| l.forwarded_bytes),
                        ("returned", |l| l.returned_bytes),
                    ],
                )
            },
        ),
        Family::counter("burst_forward_bursts", "Marked bursts by verdict", |m| {
            m.each(
                "verdict",
                &[
                    ("admitted", |l| l.bursts_admitted),
                    ("refused", |l| l.bursts_refused),
                ],
            )
        }),
        Family::gauge(
            "burst_forward_reserved_bytes",
            "Bytes that are promised to bursts and have not come",
            |m| m.gauge(|l| l.reserved_bytes),
        ),
        Family::gauge("burst_forward_queue_packets", "Packets in the queue", |m| {
            m.gauge(|l| l.queue_packets)
        }),
        Family::gauge("burst_forward_queue_bytes", "Bytes in the queue", |m| {
            m.gauge(|l| l.queue_bytes)
        }),
        Family::gauge(
            "burst_forward_queue_highest_packets",
            "The most packets that were in the queue",
            |m| m.gauge(|l| l.highest_packets),
        ),
        Family::gauge(
            "burst_forward_behind_seconds",
            "Time in which the link stood still although frames waited, since the forwarder had no CPU",
            |m| {
                let line = m.0.iter();
                line.flat_map(|l| alone(l.behind_ns as f64 / 1e9)).collect()
            },
        ),
    ];
}

#[cfg(test)]
impl crate::frame::metrics::testing::Example for ForwardMetrics {
    fn example() -> Self {
        let mut report = Report::new(Setting::new("eth1", "eth2", Admit::Bursts));
        report.update(Counts::default(), Vec::new(), 0);
        Self(report.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::metrics::Exporter;
    use crate::frame::metrics::testing::scrape;

    #[test]
    fn every_fate_has_its_sample_and_every_packet_one_fate() {
        let mut report = Report::new(Setting::new("eth1", "eth2", Admit::Bursts));
        let lost = Lost {
            ring_full: 3,
            ..Default::default()
        };
        let counts = Counts {
            forwarded: (7, 700),
            refused: 1,
            denied: 9,
            lost: [lost, lost],
            ..Default::default()
        };
        report.update(counts, Vec::new(), 0);
        let exporter = Exporter::<ForwardMetrics>::bind("127.0.0.1:0").expect("a free port");
        exporter.update(|m| m.take(&report));
        let text = scrape(&exporter);
        for sample in [
            "batchwise_burst_forward_packets_total{fate=\"forwarded\"} 7",
            "batchwise_burst_forward_packets_total{fate=\"dropped_with_burst\"} 10",
            "batchwise_burst_forward_packets_total{fate=\"lost_ring_full\"} 6",
            "batchwise_burst_forward_bursts_total{verdict=\"refused\"} 1",
        ] {
            assert!(text.contains(sample), "{sample} in {text}");
        }
    }
}
