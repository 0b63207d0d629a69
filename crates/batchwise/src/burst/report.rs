//! What people and programs see of marks and of admission.

use std::cmp::Reverse;
use std::net::IpAddr;

use batchwise_bpf::burst::{Counts, MarkFates, Source};
use batchwise_core::burst::mark::CLASSES;
use ratatui::text::{Line as Text, Span};
use serde::Serialize;

use crate::frame::human;
use crate::frame::rows::{Column, JsonLines, View, name, plain};

/// A line. The field names are a contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// What became of packets where they are marked, or where marks are taken off.
    Mark(MarkLine),
    /// What became of packets at a router's queue.
    Admit(AdmitLine),
    /// A source of marked packets, as the router knows it; those with most bursts.
    Source(SourceLine),
}

/// Packets of a sender, since the start; a GSO buffer counts as one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarkLine {
    /// When it was counted, ns since the Unix epoch.
    ts_ns: u64,
    /// Where packets leave.
    interface: String,
    /// How many bursts began.
    pub bursts: u64,
    /// How many packets were marked.
    pub marked: u64,
    /// The same by what the mark says.
    pub classes: Vec<ClassLine>,
    /// Not marked: TCP sent too few segments at once.
    pub too_short: u64,
    /// Not marked: others use the DSCP.
    pub dscp_used: u64,
    /// Not marked: others use a DSCP that marks have. Routers take it for a mark.
    pub taken: u64,
    /// Not marked: no payload, or SYN.
    pub no_data: u64,
    /// Not marked: of no port that was asked for.
    pub other_port: u64,
    /// Not marked: of no TCP socket of this host.
    pub no_socket: u64,
    /// Left as they were: their headers could not be read, or not be written.
    pub unreadable: u64,
    /// With `--border`: how many marks were taken off.
    pub cleared: u64,
}

/// Packets with one mark.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassLine {
    /// Segments that are left of the burst, at most.
    pub segments: u8,
    /// How many packets say so.
    pub packets: u64,
}

impl MarkLine {
    pub fn new(ts_ns: u64, interface: String, fates: &MarkFates) -> Self {
        let classes = CLASSES.iter().zip(fates.marked);
        let classes = classes.map(|(&segments, packets)| ClassLine { segments, packets });
        Self {
            ts_ns,
            interface,
            bursts: fates.bursts,
            marked: fates.marked.iter().sum(),
            classes: classes.collect(),
            too_short: fates.too_short,
            dscp_used: fates.dscp_used,
            taken: fates.taken,
            no_data: fates.no_data,
            other_port: fates.other_port,
            no_socket: fates.no_socket,
            unreadable: fates.unreadable,
            cleared: fates.cleared,
        }
    }

    /// Why packets were not marked.
    pub fn unmarked(&self) -> [(&'static str, u64); 7] {
        [
            ("too_short", self.too_short),
            ("dscp_used", self.dscp_used),
            ("taken", self.taken),
            ("no_data", self.no_data),
            ("other_port", self.other_port),
            ("no_socket", self.no_socket),
            ("unreadable", self.unreadable),
        ]
    }
}

/// A sender, as it is shown.
#[derive(Clone)]
pub struct MarkReport {
    pub line: MarkLine,
    rows: Vec<(u64, String)>,
    /// It is the last: text has only this one.
    over: bool,
}

impl MarkReport {
    pub fn new(line: MarkLine, over: bool) -> Self {
        let classes = line.classes.iter();
        let marked = classes.map(|c| (c.packets, format!("marked: {} segments left", c.segments)));
        let unmarked = line.unmarked().into_iter();
        let unmarked =
            unmarked.map(|(why, n)| (n, format!("left alone: {}", why.replace('_', " "))));
        let bursts = (line.bursts, "bursts that began".to_owned());
        let cleared = (line.cleared, "marks taken off".to_owned());
        let rows = std::iter::once(bursts).chain(marked).chain(unmarked);
        let rows = rows.chain([cleared]).filter(|(n, _)| *n > 0).collect();
        Self { line, rows, over }
    }
}

impl View for MarkReport {
    type Row = (u64, String);

    const COLUMNS: &'static [Column<Self::Row>] = &[
        Column::right("packets", 12, |(packets, _)| plain(packets.to_string())),
        Column::left("what became of them", 0, |(_, fate)| plain(fate.clone())),
    ];
    const NAME: &'static str = "burst mark";

    fn rows(&self) -> Vec<&Self::Row> {
        self.rows.iter().collect()
    }

    fn text_rows(&self) -> Vec<&Self::Row> {
        self.rows.iter().filter(|_| self.over).collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(&Line::Mark(self.line.clone()))
    }
}

/// A router's queue. Counts are since the start.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AdmitLine {
    /// When it was counted, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Where packets leave.
    pub interface: String,
    /// What the queue takes, bytes.
    pub limit_bytes: u64,
    /// How fast it empties, bits a second.
    pub rate_bits_per_s: u64,
    /// What is in it now, bytes.
    pub queue_bytes: u64,
    /// The same in packets; a GSO buffer is one.
    pub queue_packets: u64,
    /// The most that a packet found in it since the last line, bytes.
    pub queue_highest_bytes: u64,
    /// Packets that the queue itself dropped since the start.
    pub queue_drops: u64,
    /// What was decided.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A source that sent marked packets.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceLine {
    /// When it was counted, ns since the Unix epoch.
    ts_ns: u64,
    /// Where packets leave.
    interface: String,
    /// Its address.
    address: IpAddr,
    /// Bursts that were admitted.
    admitted: u64,
    /// Bursts that were refused.
    refused: u64,
    /// Packets that were treated as if they had no mark.
    ignored: u64,
    /// Packets with marks that were dropped.
    dropped: u64,
}

impl SourceLine {
    fn new(ts_ns: u64, interface: String, source: Source) -> Self {
        Self {
            ts_ns,
            interface,
            address: source.address,
            admitted: source.admitted.into(),
            refused: source.refused.into(),
            ignored: source.ignored.into(),
            dropped: source.dropped.into(),
        }
    }

    /// Those with most bursts, the most first.
    pub fn most(ts_ns: u64, interface: &str, sources: Vec<Source>, top: usize) -> Vec<Self> {
        let line = |source| Self::new(ts_ns, interface.to_owned(), source);
        let mut lines: Vec<_> = sources.into_iter().map(line).collect();
        lines.sort_by_key(|line| Reverse((line.admitted + line.refused, line.address)));
        lines.truncate(top);
        lines
    }
}

/// A router's queue, as it is shown: a row for each source, the queue below or before them.
#[derive(Clone)]
pub struct AdmitReport {
    pub line: AdmitLine,
    pub sources: Vec<SourceLine>,
}

impl AdmitReport {
    fn summary(&self) -> [String; 3] {
        let (line, counts) = (&self.line, &self.line.counts);
        let bytes = human::bytes;
        [
            format!(
                "queue {} of {}, at most {}; reserved {}",
                bytes(line.queue_bytes),
                bytes(line.limit_bytes),
                bytes(line.queue_highest_bytes),
                bytes(counts.reserved_bytes),
            ),
            format!(
                "bursts admitted {}, refused {}; leases lost {} ({})",
                counts.bursts_admitted,
                counts.bursts_refused,
                counts.leases_lost,
                bytes(counts.lost_bytes),
            ),
            format!(
                "dropped: without a mark {}, of refused bursts {}, by the queue itself {}",
                counts.unmarked_dropped,
                counts.bursts_refused + counts.denied,
                line.queue_drops,
            ),
        ]
    }
}

impl View for AdmitReport {
    type Row = SourceLine;

    const COLUMNS: &'static [Column<SourceLine>] = &[
        Column::left("source", 16, |source| name(source.address.to_string())),
        Column::right("admitted", 10, |source| plain(source.admitted.to_string())),
        Column::right("refused", 10, |source| plain(source.refused.to_string())),
        Column::right("ignored", 10, |source| plain(source.ignored.to_string())),
        Column::right("dropped", 10, |source| plain(source.dropped.to_string())),
    ];
    const NAME: &'static str = "burst admit";
    const WAITING: &'static str = "a source appears here when a packet of its has a mark";
    const DETAILS: u16 = 4;

    fn rows(&self) -> Vec<&SourceLine> {
        self.sources.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(&Line::Admit(self.line.clone()))?;
        let sources = self.sources.iter().cloned().map(Line::Source);
        sources.into_iter().try_for_each(|line| lines.push(&line))
    }

    fn notes(&self) -> String {
        self.summary().map(|line| line + "\n").concat()
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        (vec![plain(self.line.interface.clone())], Vec::new())
    }

    fn details(&self, _chosen: Option<&SourceLine>, _width: u16) -> Vec<Text<'static>> {
        self.summary()
            .map(|line| Text::from(format!(" {line}")))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_what_became_of_packets_and_programs_every_count() {
        let mut fates = MarkFates {
            bursts: 3,
            too_short: 5,
            ..MarkFates::default()
        };
        fates.marked[6] = 7;
        let line = MarkLine::new(1, "eth0".to_owned(), &fates);
        let report = MarkReport::new(line, true);
        let rows: Vec<String> = report
            .rows
            .iter()
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        let expected = [
            "3 bursts that began",
            "7 marked: 10 segments left",
            "5 left alone: too short",
        ];
        assert_eq!(rows, expected);
        let json = JsonLines::of(&report).expect("JSON");
        assert!(
            json.starts_with("{\"kind\":\"mark\",\"ts_ns\":1,"),
            "{json}"
        );
        assert!(json.contains("{\"segments\":10,\"packets\":7}"), "{json}");
        assert!(json.contains("\"cleared\":0"), "{json}");
    }

    #[test]
    fn a_queue_is_summed_up_before_its_sources() {
        let line = AdmitLine {
            ts_ns: 1,
            interface: "eth1".to_owned(),
            limit_bytes: 150_000,
            rate_bits_per_s: 1_000_000_000,
            queue_bytes: 12_000,
            queue_packets: 8,
            queue_highest_bytes: 140_000,
            queue_drops: 1,
            counts: Counts {
                bursts_admitted: 9,
                bursts_refused: 2,
                denied: 18,
                reserved_bytes: 4_500,
                ..Counts::default()
            },
        };
        let source = Source {
            address: [10, 0, 0, 2].into(),
            admitted: 9,
            refused: 2,
            ignored: 0,
            dropped: 20,
        };
        let source = SourceLine::new(1, "eth1".to_owned(), source);
        let report = AdmitReport {
            line,
            sources: vec![source],
        };
        let text = report.notes();
        assert!(
            text.contains("queue 12.0 kB of 150 kB, at most 140 kB; reserved 4.50 kB"),
            "{text}"
        );
        assert!(text.contains("of refused bursts 20"), "{text}");
        let json = JsonLines::of(&report).expect("JSON");
        let kinds: Vec<_> = json.lines().map(|l| l.split(',').next()).collect();
        assert_eq!(
            kinds,
            [Some("{\"kind\":\"admit\""), Some("{\"kind\":\"source\"")]
        );
    }
}
