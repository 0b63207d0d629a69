//! How `batchwise watch` shows an interval: a row for each service, side and unit, and below the live
//! table where the requests of one of them spend their time.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use batchwise_bpf::Vitals;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::{Line, Process, Side, Unit};
use ratatui::style::Stylize;
use ratatui::text::{Line as Text, Span};

use super::parts::{self, Part};
use super::services::Peers;
use crate::frame::clock::monotonic_ns;
use crate::frame::human;
use crate::frame::rows::{Column, JsonLines, Order, View, confidence, lost, name, plain};

/// An interval's lines, in order of their services.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    rows: Vec<Row>,
    /// What is not seen.
    notes: Vec<String>,
}

/// A line, and how people call what it is about.
#[derive(Clone, Debug)]
pub struct Row {
    line: Line,
    title: String,
    /// Of its connections those that wait for most.
    peers: Vec<(SocketAddr, Vitals)>,
}

impl Interval {
    pub fn new(lines: Vec<Line>, mut peers: Peers, notes: &[String]) -> Self {
        let mut peers_of = |line: &Line| peers.remove(&key(line)?);
        let row = |line| {
            let peers = peers_of(&line).unwrap_or_default();
            Row::new(line, peers)
        };
        let mut rows: Vec<_> = lines.into_iter().map(row).collect();
        for longer in [address, address_and_namespace] {
            let mut called: BTreeMap<_, u32> = BTreeMap::new();
            for row in &rows {
                *called.entry(row.called()).or_default() += 1;
            }
            let shared: Vec<_> = rows.iter().map(|row| called[&row.called()] > 1).collect();
            for (row, _) in rows.iter_mut().zip(shared).filter(|(_, shared)| *shared) {
                row.title = longer(&row.line);
            }
        }
        Self {
            rows,
            notes: notes.to_vec(),
        }
    }

    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.rows.iter().map(|row| &row.line)
    }
}

impl Row {
    /// With the shortest name, which others may have, too.
    fn new(line: Line, peers: Vec<(SocketAddr, Vitals)>) -> Self {
        let title = match (&line.connection, &line.process) {
            (None, Some(process)) => named(process, &line),
            _ => address(&line),
        };
        Self { line, title, peers }
    }

    fn called(&self) -> (String, Side, Unit) {
        (self.title.clone(), self.line.side, self.line.unit)
    }
}

fn key(line: &Line) -> Option<ServiceKey> {
    Some(ServiceKey {
        server: line.service.parse().ok()?,
        netns: line.netns,
        side: line.side,
    })
}

/// A server by its process, a client with it.
fn named(process: &Process, line: &Line) -> String {
    let name = process.name();
    match (line.side, line.service.rsplit_once(':')) {
        (Side::Server, Some((_, port))) => format!("{name}:{port}"),
        _ => format!("{name} → {}", line.service),
    }
}

/// The connection where there is one: it contains the service.
fn address(line: &Line) -> String {
    line.connection.as_ref().unwrap_or(&line.service).clone()
}

fn address_and_namespace(line: &Line) -> String {
    format!("{} in {}", address(line), line.netns)
}

impl View for Interval {
    type Row = Row;

    const COLUMNS: &'static [Column<Row>] = &[
        Column::left("time", 9, |r: &Row| plain(human::clock(r.line.ts_ns))).text_only(),
        Column::left("service", 21, |r: &Row| name(r.title.clone())),
        Column::left("side", 6, |r: &Row| plain(human::word(&r.line.side))),
        Column::right("rate", 14, |r: &Row| {
            let rate = human::rate(r.line.throughput_per_s);
            plain(format!("{rate} {}", parts::per_second(&r.line)))
        }),
        Column::right("total", 8, |r: &Row| {
            plain(human::maybe_duration(r.line.latency_ns.total)).bold()
        }),
        Column::right("p99", 8, |r: &Row| {
            plain(human::maybe_duration(r.line.tails_ns.p99))
        }),
        Column::right("network", 8, |r: &Row| {
            plain(human::maybe_duration(r.line.latency_ns.network))
        }),
        Column::right("turnaround", 10, |r: &Row| {
            plain(human::maybe_duration(r.line.latency_ns.turnaround))
        }),
        Column::right("stacks + wire", 13, |r: &Row| part(&r.line, 0)).text_only(),
        Column::right("unread here", 11, |r: &Row| part(&r.line, 1)).text_only(),
        Column::right("unread at peer", 14, |r: &Row| part(&r.line, 2)).text_only(),
        Column::right("confidence", 10, |r: &Row| {
            confidence(Some(r.line.confidence))
        }),
        Column::left("estimator", 9, |r: &Row| {
            plain(human::word(&r.line.estimator))
        }),
        Column::right("conns", 5, |r: &Row| plain(r.line.connections.to_string())),
        Column::left("nagle", 5, |r: &Row| plain(human::word(&r.line.nagle))),
        Column::right("counted", 7, |r: &Row| {
            plain(human::percent(r.line.coverage))
        })
        .text_only(),
        Column::right("cost", 6, |r: &Row| plain(human::percent(r.line.cost))).text_only(),
        Column::right("lost", 4, |r: &Row| plain(r.line.lost_events.to_string())).text_only(),
        Column::left("notes", 5, |r: &Row| plain(parts::notes(&r.line))).text_only(),
    ];
    const NAME: &'static str = "watch";
    const WAITING: &'static str =
        "a service appears here as soon as its connections carry requests";
    const DETAILS: u16 = 7;
    const ORDERS: &'static [Order<Row>] = &[
        Order {
            key: b'l',
            name: "load",
            rank: |r| r.line.throughput_per_s,
        },
        Order {
            key: b't',
            name: "latency",
            rank: |r| r.line.latency_ns.total.map_or(-1.0, |ns| ns as f64),
        },
        Order {
            key: b'w',
            name: "what is wrong",
            rank: |r| match (&r.line.advice, r.line.latency_ns.total) {
                (None, _) => -1.0,
                (Some(_), total) => total.unwrap_or(0) as f64,
            },
        },
    ];
    const COURSE: &'static [&'static str] = &["p50", "p90", "p99"];

    fn rows(&self) -> Vec<&Row> {
        self.rows.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        self.lines().try_for_each(|line| lines.push(line))
    }

    fn silence(&self) -> Option<String> {
        (!self.notes.is_empty()).then(|| self.notes.join("; "))
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        // the agent's count, which all lines repeat
        let events = self.lines().map(|line| line.lost_events).max();
        let mut right = lost(events.unwrap_or(0));
        let first = || self.lines().next();
        let cost = first().map(|line| human::percent(line.cost));
        right.extend(cost.map(|cost| format!("cost {cost} of a CPU  ").dim()));
        right.extend(first().map(|line| human::clock(line.ts_ns).dim()));
        (Vec::new(), right)
    }

    fn recent(row: &Row) -> Option<(String, Vec<Option<u64>>)> {
        let line = &row.line;
        let [side, unit] = [human::word(&line.side), human::word(&line.unit)];
        let key = format!("{} {side} {unit}", address_and_namespace(line));
        let tails = &line.tails_ns;
        Some((
            key,
            vec![line.latency_ns.total, tails.p50, tails.p90, tails.p99],
        ))
    }

    fn remark(row: &Row) -> Option<String> {
        row.line.advice.as_ref().map(|advice| advice.text.clone())
    }

    fn page(row: &Row) -> Vec<Text<'static>> {
        let now = monotonic_ns();
        row.peers.iter().map(|peer| connection(peer, now)).collect()
    }

    fn details(&self, chosen: Option<&Row>, width: u16) -> Vec<Text<'static>> {
        let Some(Row { line, title, .. }) = chosen else {
            return Vec::new();
        };
        let parts = parts::parts(line);
        let latency = &line.latency_ns;
        let sum = vec![
            " ".into(),
            name(title.clone()),
            format!("  {}   ", parts::estimate(line)).into(),
            human::maybe_duration(latency.total).bold(),
            within(line.stderr_ns.total).dim(),
            " total = ".dim(),
            human::maybe_duration(latency.network).into(),
            " network + ".dim(),
            human::maybe_duration(latency.turnaround).into(),
            " turnaround".dim(),
        ];
        let (labels, times) = legend(&parts, width);
        let tails = &line.tails_ns;
        let mut percentiles = vec![" ".into()];
        for (name, ns) in [
            ("p50", tails.p50),
            ("p90", tails.p90),
            ("p99", tails.p99),
            ("p99.9", tails.p999),
        ] {
            percentiles.push(format!("{name} ").dim());
            percentiles.push(format!("{}   ", human::maybe_duration(ns)).into());
        }
        let state = vec![
            " confidence ".dim(),
            confidence(Some(line.confidence)),
            "   connections ".dim(),
            line.connections.to_string().into(),
            "   counted ".dim(),
            human::percent(line.coverage).into(),
            "   Nagle ".dim(),
            human::word(&line.nagle).into(),
        ];
        let bar = bar(&parts, width);
        vec![
            Text::from(sum),
            Text::from(percentiles),
            bar,
            labels,
            times,
            Text::from(state),
            Text::from(format!(" {}", parts::notes(line)).yellow()),
        ]
    }
}

fn connection((peer, v): &(SocketAddr, Vitals), now: u64) -> Text<'static> {
    let oldest = (v.oldest > 0).then(|| now.saturating_sub(v.oldest));
    let bytes = |n: u32| human::bytes(n.into());
    Text::from(format!(
        " {peer:<24} round trip {:>8}   under way {:>3}   oldest {:>8}   unread {:>8}   unacked {:>8}",
        human::duration(v.rtt),
        v.under_way,
        human::maybe_duration(oldest),
        bytes(v.unread),
        bytes(v.outstanding),
    ))
}

/// How far the truth may be off, in 19 of 20 cases; nothing where that is not known.
fn within(stderr_ns: Option<u64>) -> String {
    stderr_ns.map_or_else(String::new, |ns| format!(" ± {}", human::duration(2 * ns)))
}

fn part(line: &Line, at: usize) -> Span<'static> {
    plain(parts::parts(line)[at].text())
}

fn bar(parts: &[Part; 4], width: u16) -> Text<'static> {
    let width = width.saturating_sub(2);
    let cells = cells(parts, width);
    if cells.iter().all(|cells| *cells == 0) {
        return Text::from(format!(" {}", "·".repeat(width.into())).dim());
    }
    let spans = cells
        .iter()
        .zip(parts)
        .map(|(cells, part)| Span::styled(part.glyph.repeat((*cells).into()), part.color));
    Text::from_iter(std::iter::once(Span::from(" ")).chain(spans))
}

/// Divides `width` cells in proportion to the parts that are known, each boundary rounded to the
/// nearest cell, so that the cells always add up.
fn cells(parts: &[Part], width: u16) -> Vec<u16> {
    let known = parts.iter().filter_map(|part| part.ns);
    let sum: u128 = known.map(u128::from).sum();
    let mut before = 0u128;
    let mut drawn = 0u16;
    let boundary = |part: &Part| {
        before += u128::from(part.ns.unwrap_or(0));
        let boundary = (before * u128::from(width) * 2 + sum).checked_div(sum * 2);
        let boundary = boundary.map_or(0, |cell| u16::try_from(cell).unwrap_or(width));
        boundary - std::mem::replace(&mut drawn, boundary)
    };
    parts.iter().map(boundary).collect()
}

/// What the bar's parts are, and below how long each takes, with its share where the whole is known.
fn legend(parts: &[Part; 4], width: u16) -> (Text<'static>, Text<'static>) {
    let column = usize::from(width.saturating_sub(1) / 4);
    let whole: Option<u64> = parts.iter().map(|part| part.ns).sum();
    let (mut labels, mut times) = (vec![Span::from(" ")], vec![Span::from(" ")]);
    for part in parts {
        let label = format!(" {}", part.label);
        labels.push(Span::styled(part.glyph, part.color));
        labels.push(format!("{label:<0$}", column.saturating_sub(1)).dim());
        let mut time = format!("  {}", part.text());
        if let (Some(ns), Some(whole @ 1..)) = (part.ns, whole) {
            time += &format!("  {:.0} %", ns as f64 / whole as f64 * 100.0);
        }
        times.push(format!("{time:<column$}").into());
    }
    (Text::from(labels), Text::from(times))
}

#[cfg(test)]
mod tests {
    use batchwise_core::sense::report::{Estimator, Latency, Stages, Tails};

    use super::super::samples;
    use super::*;
    use crate::frame::rows::picture::picture;
    use crate::frame::rows::{LiveTable, TextTable};

    fn drawn(lines: Vec<Line>, width: u16, height: u16) -> String {
        let mut table = LiveTable::new("waiting for traffic on port 6379…".to_owned());
        table.show(&Interval::new(lines, Peers::new(), &[]));
        picture(width, height, |frame| table.draw(frame))
    }

    #[test]
    fn the_table_is_what_people_read() {
        let (two_sided, local) = (samples::two_sided(), samples::local());
        let (two_sided, local) = (Row::new(two_sided, Vec::new()), Row::new(local, Vec::new()));
        let text = TextTable::new(Interval::COLUMNS).rows(&[&two_sided, &local]);
        assert_eq!(text, include_str!("testdata/plain.txt"));
    }

    #[test]
    fn two_services_at_80x24() {
        let lines = vec![samples::two_sided(), samples::local()];
        let text = drawn(lines, 80, 24);
        assert_eq!(text, include_str!("testdata/two_services.txt"));
    }

    #[test]
    fn an_estimate_without_parts_shows_dashes_and_an_empty_bar() {
        let hint = Line {
            estimator: Estimator::Hint,
            latency_ns: Latency {
                total: Some(468_000),
                ..Latency::default()
            },
            stages_ns: Stages::default(),
            tails_ns: Tails::default(),
            ..samples::two_sided()
        };
        let text = drawn(vec![hint], 100, 24);
        for part in [
            "468 µs total = – network + – turnaround",
            "application's hint",
            "····",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let shares = text
            .lines()
            .any(|l| l.starts_with("   –") && l.contains('%'));
        assert!(!shares && !text.contains("0 ns"), "{text}");
    }

    #[test]
    fn a_network_namespace_is_shown_where_two_services_have_the_same_name_and_only_there() {
        let elsewhere = Line {
            netns: 4_026_532_999,
            ..samples::two_sided()
        };
        let lines = vec![samples::two_sided(), elsewhere, samples::local()];
        let text = drawn(lines.clone(), 120, 24);
        for name in ["10.0.0.2:6379 in 4026531840", "10.0.0.2:6379 in 4026532999"] {
            assert!(text.contains(name), "{text}");
        }
        assert!(!text.contains("11211 in"), "{text}");
        let json = JsonLines::of(&Interval::new(lines, Peers::new(), &[])).expect("JSON");
        assert!(!json.contains(" in "), "{json}");
    }

    #[test]
    fn while_there_is_nothing_it_says_what_is_not_seen() {
        let mut table = LiveTable::new("waiting for traffic on port 6379…".to_owned());
        let notes = ["nothing listens on port 6379".to_owned()];
        table.show(&Interval::new(Vec::new(), Peers::new(), &notes));
        let text = picture(80, 24, |frame| table.draw(frame));
        assert!(text.contains("nothing listens on port 6379"), "{text}");
        assert!(!text.contains("waiting"), "{text}");
    }

    #[test]
    fn lost_events_are_shown_and_their_absence_is_not() {
        assert!(!drawn(vec![samples::two_sided()], 80, 24).contains("lost"));
        assert!(drawn(vec![samples::local()], 80, 24).contains("7 events lost"));
    }

    #[test]
    fn a_part_that_is_not_known_is_null_in_json() {
        let text = JsonLines::of(&Interval::new(
            vec![samples::two_sided(), samples::local()],
            Peers::new(),
            &[],
        ));
        let text = text.expect("JSON");
        let read: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(read, [samples::two_sided(), samples::local()]);
        let last = text.lines().last().expect("a line");
        let json: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert!(json["latency_ns"]["network"].is_null());
        assert!(json["stages_ns"]["unread_remote"].is_null());
        assert_eq!(json["latency_ns"]["total"], 43_500);
    }

    #[test]
    fn cells_of_the_bar_always_add_up_to_its_width() {
        let part = |ns| Part {
            ns,
            ..parts::parts(&samples::local())[0]
        };
        for times in [
            [Some(1), Some(1), Some(1), None],
            [Some(u64::MAX), Some(3), None, Some(9)],
        ] {
            let cells = cells(&times.map(part), 78);
            assert_eq!(cells.iter().sum::<u16>(), 78, "{times:?}");
        }
        assert_eq!(cells(&[part(None), part(Some(0))], 78), [0, 0]);
    }
}
