//! What the live screen of the demo shows, drawn from its moments alone: load, a chart of measured
//! and estimated latency, both ends side by side, and where the time goes.

use std::time::Duration;

use batchwise_core::sense::report::Side;
use batchwise_testbed::window::EndEstimate;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, Row, Table};

use super::display::{Story, error, estimator, nagle};
use super::moment::Moment;
use super::plan::{self, PHASES, Phase, VALUE_SIZE};
use crate::plot::{duration, maybe_duration, thousands};

const MEASURED: Color = Color::White;
const CLIENT: Color = Color::Cyan;
const SERVER: Color = Color::Yellow;
/// The parts of a request's time, in the order of [`EndEstimate::parts`]: word and colour.
const PARTS: [(&str, Color); 4] = [
    ("stacks + wire", Color::Blue),
    ("unread here", Color::Green),
    ("unread at peer", Color::LightRed),
    ("application", Color::Magenta),
];
const ENDS: [(Side, &str); 2] = [(Side::Client, "client"), (Side::Server, "server")];
/// Columns left and right of a bar of stages.
const BAR_MARGINS: (usize, usize) = (8, 9);

/// The screen's contents.
pub struct View {
    note: Option<&'static str>,
    status: String,
    clock: String,
    seconds: f64,
    moments: Vec<Moment>,
}

impl View {
    /// Nothing was measured yet.
    pub fn new(note: Option<&'static str>, length: Duration) -> Self {
        Self {
            note,
            status: String::new(),
            clock: String::new(),
            seconds: length.as_secs_f64(),
            moments: Vec::new(),
        }
    }

    /// What is being done now.
    pub fn set_status(&mut self, what: &str) {
        what.clone_into(&mut self.status);
    }

    /// What was measured so far.
    pub fn set_story(&mut self, story: &Story<'_>) {
        story.phase.name().clone_into(&mut self.status);
        let (now, all) = (story.elapsed.as_secs(), story.length.as_secs());
        self.clock = format!("{now} of about {all} s");
        let known = self.moments.len().min(story.moments.len());
        self.moments.extend_from_slice(&story.moments[known..]);
    }

    /// Draws it over the whole frame.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [2, 0, 8, 3, 1].map(|rows| match rows {
            0 => Constraint::Min(5),
            rows => Constraint::Length(rows),
        });
        let [head, chart, table, bars, foot] = Layout::vertical(rows).areas(frame.area());
        self.draw_head(frame, head);
        self.draw_chart(frame, chart);
        if let Some(moment) = self.moments.last() {
            frame.render_widget(ends(moment), table);
            draw_bars(frame, bars, moment);
        }
        let note = self
            .note
            .unwrap_or("q or Ctrl-C quits; a report is written at the end");
        frame.render_widget(Line::from(note).dark_gray(), foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let title = vec![
            Span::from(" batchwise demo ").reversed().bold(),
            format!("  Redis, SET of {VALUE_SIZE} B, one connection: ").into(),
            Span::from(self.status.clone()).bold(),
        ];
        let [title_area, load_area] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
        frame.render_widget(Line::from(title), title_area);
        let Some(moment) = self.moments.last() else {
            return;
        };
        let truth = &moment.truth;
        let (_, top) = plan::climb();
        let achieved = format!("  achieved {:>6}/s", thousands(truth.achieved_rps.round()));
        let achieved = match moment.saturated {
            true => Span::from(format!("{achieved}: too much")).red().bold(),
            false => achieved.into(),
        };
        let offered = format!(" offered {:>6}/s ", thousands(moment.offered_rps.round()));
        let clock = Line::from(self.clock.clone()).right_aligned();
        let used = offered.len() + achieved.width() + clock.width() + 2;
        let room = usize::from(area.width).saturating_sub(used).min(40) as f64;
        let full = (moment.offered_rps / top as f64).clamp(0.0, 1.0) * room;
        let rest = room - full.round();
        let load = vec![
            Span::from(offered).bold(),
            "█".repeat(full.round() as usize).blue(),
            "░".repeat(rest as usize).dark_gray(),
            achieved,
        ];
        frame.render_widget(Line::from(load), load_area);
        frame.render_widget(clock, load_area);
    }

    fn draw_chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut lines = Vec::new();
        let measured = |m: &Moment| m.truth.mean_from_send_ns;
        // A climb at a time: nothing joins them.
        for Phase { arm } in PHASES {
            let points = |latency: &dyn Fn(&Moment) -> Option<f64>| -> Vec<(f64, f64)> {
                let climb = self.moments.iter().filter(|m| m.arm == arm);
                climb
                    .filter_map(|m| Some((m.at_s, latency(m)?.max(1.0).log10())))
                    .collect()
            };
            let server = points(&|m| m.estimated_ns(Side::Server));
            lines.push((server, SERVER, GraphType::Line, Marker::Braille));
            let client = points(&|m| m.estimated_ns(Side::Client));
            lines.push((client, CLIENT, GraphType::Line, Marker::Braille));
            lines.push((points(&measured), MEASURED, GraphType::Scatter, Marker::Dot));
        }
        let all = lines
            .iter()
            .flat_map(|(points, ..)| points.iter().map(|p| p.1));
        let (low, high) = all.fold((4.3, 4.7), |(low, high), y| (y.min(low), y.max(high)));
        let (low, high) = half_decades(low, high);
        let labels: Vec<_> = (0..=(2.0 * (high - low)).round() as u32)
            .map(|half| format!("{:>6}", duration(10f64.powf(low + f64::from(half) / 2.0))))
            .collect();
        let datasets = lines.iter().map(|(points, color, graph, marker)| {
            Dataset::default()
                .data(points)
                .style(Style::new().fg(*color))
                .graph_type(*graph)
                .marker(*marker)
        });
        let title = Line::from(vec![
            " mean latency  ".bold(),
            Span::from("• measured  ").fg(MEASURED),
            Span::from("─ estimated at the client's end  ").fg(CLIENT),
            Span::from("─ at the server's ").fg(SERVER),
        ]);
        let seconds = self
            .seconds
            .max(self.moments.last().map_or(0.0, |m| m.at_s));
        let times = [0.0, seconds / 2.0, seconds].map(|s| format!("{s:.0} s"));
        let chart = Chart::new(datasets.collect())
            .block(Block::new().borders(Borders::TOP).title(title))
            .legend_position(None)
            .x_axis(
                Axis::default()
                    .bounds([0.0, seconds])
                    .labels(times)
                    .dark_gray(),
            )
            .y_axis(
                Axis::default()
                    .bounds([low, high])
                    .labels(labels)
                    .dark_gray(),
            );
        frame.render_widget(chart, area);
    }
}

/// The exponents of ten that bound a log axis whose labels are half a decade apart.
fn half_decades(low: f64, high: f64) -> (f64, f64) {
    let low = (low * 2.0).floor() / 2.0;
    (low, ((high * 2.0).ceil() / 2.0).max(low + 0.5))
}

fn ends(moment: &Moment) -> Table<'static> {
    let truth = &moment.truth;
    let both = |cell: &dyn Fn(&EndEstimate, Side) -> String| {
        ENDS.map(|(side, _)| {
            moment
                .end(side)
                .map_or_else(|| "–".to_owned(), |end| cell(end, side))
        })
    };
    let row = |name: &str, measured: String, [client, server]: [String; 2]| {
        Row::new([name.to_owned(), measured, client, server])
    };
    let latency = both(&|end, side| {
        let error = format!("({})", error(moment, side));
        format!("{:>7} {error:>8}", maybe_duration(end.total_ns))
    });
    let part = |part: fn(&EndEstimate) -> Option<f64>| {
        both(&move |end, _| format!("{:>7}", maybe_duration(part(end))))
    };
    let how = both(&|end, _| format!("{}, {:.2}", estimator(end), end.confidence));
    let rows = [
        row(
            "mean latency",
            format!("{:>7}", maybe_duration(truth.mean_from_send_ns)),
            latency,
        )
        .bold(),
        row(
            "  since it was due",
            format!("{:>7}", maybe_duration(truth.mean_from_intended_ns)),
            Default::default(),
        ),
        row("  network", String::new(), part(|e| e.network_ns)),
        row("  application", String::new(), part(|e| e.turnaround_ns)),
        row("how, confidence", "clock".into(), how),
        row(
            "Nagle's algorithm",
            nagle(moment.nagle).to_owned(),
            both(&|end, _| nagle(Some(end.nagle)).to_owned()),
        ),
    ];
    let widths = [
        Constraint::Length(18),
        Constraint::Length(15),
        Constraint::Length(22),
        Constraint::Length(22),
    ];
    let header = ["", "measured", "client estimates", "server estimates"];
    let styles = [Color::Reset, MEASURED, CLIENT, SERVER];
    let cells = header
        .into_iter()
        .zip(styles)
        .map(|(name, color)| Span::styled(name, Style::new().fg(color)));
    let header = Row::new(cells).style(Style::new().add_modifier(Modifier::UNDERLINED));
    Table::new(rows, widths).header(header)
}

fn draw_bars(frame: &mut Frame<'_>, area: Rect, moment: &Moment) {
    let totals = ENDS.map(|(side, _)| {
        let parts = moment.end(side).map(EndEstimate::parts);
        parts.into_iter().flatten().flatten().sum::<f64>()
    });
    let longest = totals[0].max(totals[1]).max(1.0);
    let (left, right) = BAR_MARGINS;
    let room = usize::from(area.width).saturating_sub(left + right);
    let mut lines = Vec::new();
    for ((side, name), total) in ENDS.into_iter().zip(totals) {
        let mut spans = vec![Span::from(format!("{name:<left$}"))];
        if let Some(end) = moment.end(side) {
            let parts = end.parts().map(|ns| ns.unwrap_or(0.0) / longest);
            let cells = whole_cells(parts, room);
            spans.extend(cells.into_iter().zip(PARTS).map(|(cells, (_, color))| {
                Span::styled("█".repeat(cells), Style::new().fg(color))
            }));
            spans.push(format!(" {}", duration(total)).into());
        }
        lines.push(Line::from(spans));
    }
    let mut legend = vec![Span::from(" ".repeat(left))];
    for (name, color) in PARTS {
        legend.push(Span::styled("█ ", Style::new().fg(color)));
        legend.push(format!("{name}  ").into());
    }
    lines.push(Line::from(legend));
    frame.render_widget(ratatui::text::Text::from(lines), area);
}

/// Shares of a bar as whole cells, whose sum is that of the shares, rounded.
fn whole_cells(shares: [f64; 4], room: usize) -> [usize; 4] {
    let (mut sum, mut used) = (0.0, 0);
    shares.map(|share| {
        sum += share;
        let cells = ((sum * room as f64).round() as usize).saturating_sub(used);
        used += cells;
        cells
    })
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::plan::PHASES;
    use super::super::samples::moment;
    use super::*;

    fn shown(width: u16, height: u16, moments: &[Moment]) -> String {
        let mut view = View::new(None, Duration::from_secs(58));
        view.set_status("starting");
        if !moments.is_empty() {
            view.set_story(&Story {
                phase: PHASES[0],
                elapsed: Duration::from_secs(7),
                length: Duration::from_secs(58),
                moments,
            });
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn both_ends_and_the_truth_fit_on_eighty_columns() {
        let screen = shown(80, 24, &[moment(7, true, 123_456.0, 23_400.0, 25_740.0)]);
        for part in [
            "123.5k/s",
            "measured",
            "client estimates",
            "server estimates",
            "23 µs",
            "26 µs  (+10 %)",
            "two-sided, 0.97",
            "application",
            "7 of about 58 s",
            "TCP_NODELAY",
        ] {
            assert!(screen.contains(part), "{part:?} is missing in\n{screen}");
        }
    }

    #[test]
    fn too_much_load_is_told() {
        let screen = shown(80, 24, &[moment(7, true, 3e5, 9e6, 9e6)]);
        assert!(screen.contains("too much"), "{screen}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn_also_before_there_is_traffic() {
        let moments = [moment(1, true, 1e5, 2e4, 2e4)];
        for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60)] {
            shown(width, height, &moments);
            shown(width, height, &[]);
        }
        assert!(shown(80, 24, &[]).contains("starting"));
    }

    #[test]
    fn the_cells_of_a_bar_add_up() {
        assert_eq!(whole_cells([0.33, 0.33, 0.34, 0.0], 10), [3, 4, 3, 0]);
        assert_eq!(whole_cells([0.0; 4], 10), [0; 4]);
    }

    #[test]
    fn a_log_axis_ends_at_half_decades() {
        assert_eq!(half_decades(4.3, 4.7), (4.0, 5.0));
        assert_eq!(half_decades(4.5, 4.5), (4.5, 5.0));
    }
}
