//! What people and Prometheus see of a profile.

use std::collections::BTreeMap;

use batchwise_core::profile::Component;
use batchwise_core::profile::report::{
    Clock, CpuShare, Line, PhaseShare, ProcessShare, Share, Traffic,
};
use ratatui::style::Stylize;
use ratatui::text::{self, Span};

use crate::frame::human::{duration, percent, rate, word};
use crate::frame::metrics::{Family, Metrics, alone};
use crate::frame::rows::{Column, JsonLines, TextTable, View, name, plain};

/// A component, and its functions that took most.
#[derive(Clone, Debug)]
pub struct Row {
    share: Share,
    most: String,
}

/// An interval, as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub line: Line,
    /// As it was counted last, for people.
    pub traffic: Option<Traffic>,
    rows: Vec<Row>,
}

/// Functions of a component that are named.
const NAMED: usize = 3;
/// A share of 1 is so many characters.
const BAR: f64 = 40.0;

impl Shown {
    pub fn new(line: Line) -> Self {
        let row = |share: &Share| Row {
            most: most(&line, share.component),
            share: share.clone(),
        };
        // all of them, so that none moves
        let rows = line.components.iter().map(row).collect();
        Self {
            rows,
            traffic: line.traffic.clone(),
            line,
        }
    }

    pub fn summary(&self) -> String {
        let line = &self.line;
        let clock = match line.clock {
            Clock::Cycles => "cycles",
            Clock::Timer => "timer",
        };
        format!(
            "{:.2} of {} CPUs busy{}, {} samples at {} Hz ({clock})",
            line.cpus_busy,
            line.cpus.len(),
            line.only.says(),
            line.samples,
            line.hz
        )
    }

    /// All of it, for who reads text.
    pub fn text(&self) -> String {
        let line = &self.line;
        let rows: Vec<&Row> = self.rows.iter().collect();
        let table = TextTable::new(Self::COLUMNS).rows(&rows);
        let facts = self.facts().into_iter();
        let facts = facts.map(|(name, of)| format!("{name:<10} {of}\n"));
        let lost = (line.lost > 0).then(|| format!("{} samples were lost\n", line.lost));
        let doubt = line.doubt().map(|doubt| doubt + "\n");
        let text: String = facts.chain(lost).chain(doubt).collect();
        format!("{}\n\n{table}\n{text}", self.summary())
    }

    /// What is beside the components, by name.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let line = &self.line;
        let list = |shares: Vec<String>| shares.join("   ");
        let phase = |p: &PhaseShare| format!("{} {}", p.phase.label(), percent(p.share));
        let cpu = |c: &CpuShare| {
            let (busy, softirq) = (percent(c.busy), percent(c.softirq));
            format!("{}: {busy} (softirq {softirq})", c.cpu)
        };
        let process = |p: &ProcessShare| {
            let (own, interrupted) = (percent(p.share), percent(p.interrupted));
            format!("{} {own} (softirq meanwhile {interrupted})", p.name)
        };
        let processes = line.processes.iter().take(5);
        let mut facts = vec![
            ("phases", list(line.phases.iter().map(phase).collect())),
            ("CPUs", list(line.cpus.iter().map(cpu).collect())),
            ("processes", list(processes.map(process).collect())),
        ];
        facts.extend(traffic(line, self.traffic.as_ref()));
        facts
    }
}

/// What went on, and what it took; by name.
pub fn traffic(line: &Line, traffic: Option<&Traffic>) -> Vec<(&'static str, String)> {
    let Some(t) = traffic else {
        return Vec::new();
    };
    let mean = |sum: u64, count: u64| rate(sum as f64 / count.max(1) as f64);
    let buffers = |count: u64, bytes: u64, packets: u64| {
        format!(
            "{}B/s in {}/s buffers of {}B, {} packets each",
            rate(t.rate(bytes)),
            rate(t.rate(count)),
            mean(bytes, count),
            mean(packets, count)
        )
    };
    let calls =
        |count: u64, bytes: u64| format!("{}/s of {}B", rate(t.rate(count)), mean(bytes, count));
    let moved = t.rate(t.received_bytes.max(t.queued_bytes));
    let mut told = vec![
        (
            "received",
            buffers(t.received, t.received_bytes, t.received_packets),
        ),
        ("sent", buffers(t.queued, t.queued_bytes, t.queued_packets)),
    ];
    if t.sends + t.reads > 0 {
        let (sends, reads) = (calls(t.sends, t.sent_bytes), calls(t.reads, t.read_bytes));
        told.push(("calls", format!("sends {sends}, reads {reads}")));
    }
    let (woken, again) = (rate(t.rate(t.wakeups)), rate(t.rate(t.retransmissions)));
    told.push((
        "beside",
        format!("{woken}/s wake-ups, {again}/s retransmissions"),
    ));
    // packets are the whole machine's
    if moved > 0.0 && line.only.is_everything() {
        let ns = |of: f64| line.cpus_busy * 1e9 / of;
        let call = match t.rate(t.sends) {
            0.0 => String::new(),
            sends => format!(", {} a call that sends", duration(ns(sends) as u64)),
        };
        let byte = ns(moved);
        told.push((
            "cost",
            format!("{byte:.3} ns of CPU a byte that devices moved one way{call}"),
        ));
    }
    told
}

fn bar(share: f64) -> String {
    let eighths = (share * BAR * 8.0).round() as usize;
    let parts = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + parts[eighths % 8]
}

/// The component's functions that took most.
pub fn most(line: &Line, component: Component) -> String {
    let of_it = line.functions.iter().filter(|f| f.component == component);
    let named = of_it.take(NAMED);
    let all: Vec<_> = named
        .map(|f| format!("{} {}", f.name, percent(f.share)))
        .collect();
    all.join(", ")
}

impl View for Shown {
    type Row = Row;

    const COLUMNS: &'static [Column<Row>] = &[
        Column::left("component", 14, |row| name(row.share.component.label())),
        Column::right("share", 7, |row| plain(percent(row.share.share))),
        Column::right("softirq", 7, |row| plain(percent(row.share.softirq))),
        Column::left("", 24, |row| bar(row.share.share).cyan()),
        Column::left("most of it", 10, |row| plain(row.most.clone())),
    ];
    const NAME: &'static str = "profile";
    // three, and five about the traffic
    const DETAILS: u16 = 8;

    fn rows(&self) -> Vec<&Row> {
        self.rows.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(&self.line)
    }

    /// Text comes at the end, as a whole.
    fn text_rows(&self) -> Vec<&Row> {
        Vec::new()
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        (vec![Span::from(self.summary())], Vec::new())
    }

    fn details(&self, _chosen: Option<&Row>, _width: u16) -> Vec<text::Line<'static>> {
        let line = |(name, of): (&str, String)| {
            text::Line::from(vec![format!(" {name:<10} ").dim(), Span::from(of)])
        };
        self.facts().into_iter().map(line).collect()
    }

    fn warning(&self) -> Option<String> {
        match self.line.lost {
            0 => self.line.doubt(),
            lost => Some(format!("{lost} samples were lost")),
        }
    }
}

/// Counters are sums since the start.
#[derive(Debug, Default)]
pub struct ProfileMetrics {
    samples: BTreeMap<Component, u64>,
    lost: u64,
    cpus_busy: f64,
}

impl ProfileMetrics {
    pub fn take(&mut self, line: &Line) {
        for share in &line.components {
            *self.samples.entry(share.component).or_default() += share.samples;
        }
        self.lost += line.lost;
        self.cpus_busy = line.cpus_busy;
    }
}

impl Metrics for ProfileMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::counter(
            "profile_samples",
            "Samples in which a CPU did something, by component",
            |m| {
                let labelled = |(component, count): (&Component, &u64)| {
                    (vec![("component", word(component))], *count)
                };
                m.samples.iter().map(labelled).collect()
            },
        ),
        Family::counter("profile_lost_samples", "Samples that found no room", |m| {
            alone(m.lost)
        }),
        Family::gauge(
            "profile_cpus_busy",
            "CPUs' worth of time that was spent, of those that are sampled",
            |m| alone(m.cpus_busy),
        ),
    ];
}

#[cfg(test)]
impl crate::frame::metrics::testing::Example for ProfileMetrics {
    fn example() -> Self {
        Self {
            samples: BTreeMap::from([(Component::Copy, 1)]),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::rows::LiveTable;
    use crate::frame::rows::picture::picture;
    use batchwise_core::profile::Tally;
    use batchwise_core::profile::report::{Only, Sampled};

    fn line(only: Only) -> Line {
        let sampled = Sampled {
            ts_ns: 0,
            interval_ns: 1_000_000_000,
            clock: Clock::Timer,
            hz: 997,
            only,
            cpus: &[0, 1],
            lost: 0,
        };
        let mut line = Line::of(&Tally::default(), sampled);
        line.traffic = Some(Traffic {
            ns: 1,
            received_bytes: 1,
            ..Traffic::default()
        });
        line
    }

    #[test]
    fn the_live_view_has_all_rows_and_what_is_beside_them() {
        let mut table = LiveTable::new(String::new());
        table.show(&Shown::new(line(Only::default())));
        let text = picture(100, 24, |frame| table.draw(frame));
        let labels = Component::ALL.map(Component::label);
        let facts = ["phases", "CPUs", "processes", "received", "beside", "cost"];
        for part in labels.iter().chain(&facts) {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.contains("1: 0.00 %"), "an idle CPU:\n{text}");
    }

    #[test]
    fn what_some_processes_take_is_not_divided_by_the_traffic_of_all() {
        let has_cost = |line: &Line| {
            traffic(line, line.traffic.as_ref())
                .iter()
                .any(|(name, _)| *name == "cost")
        };
        assert!(has_cost(&line(Only::default())));
        let some = line(Only {
            pids: vec![7],
            ..Only::default()
        });
        assert!(!has_cost(&some));
        let summary = Shown::new(some).summary();
        assert!(summary.starts_with("0.00 of 2 CPUs busy with process 7, "));
    }
}
