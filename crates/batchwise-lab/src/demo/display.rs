//! Where the demo shows itself: on a terminal a picture that is drawn again and again, else one line
//! a passage; and the same picture in text at its end.

use std::io::{self, IsTerminal as _, Stdout, Write as _};
use std::time::Instant;

use anyhow::{Context as _, Result};
use batchwise_core::sense::report::{Nagle, Side};
use ratatui::backend::CrosstermBackend;
use ratatui::style::{Color, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::bins::{Bin, Carried, TOO_LONG, bins};
use super::moment::{Moment, Slice, whole};
use super::plan::{FOOT, Plan, TOP, VALUE_SIZE};
use crate::arm::Arm;
use crate::engine::text::{duration, maybe_duration, thousands};

pub const WIDTH: usize = 79;
/// Columns of a bar, and of the text after it.
const BAR: usize = 10;
const VALUE: usize = 9;
/// Slices from which on a bin is shown while the demo runs: "so far".
const SOME: usize = 5;
/// Lines above and below the picture.
const AROUND: u16 = 9;
const COLORS: [Color; 3] = [Color::LightBlue, Color::LightRed, Color::LightGreen];

pub struct Display {
    terminal: Option<Terminal<CrosstermBackend<Stdout>>>,
    began: Instant,
    status: String,
    moments: Vec<Moment>,
}

impl Display {
    /// What fits standard output.
    pub fn open(plan: &Plan) -> Result<Self> {
        let viewport = Viewport::Inline(plan.bins as u16 + AROUND);
        // A terminal that does not tell where its cursor is gets lines.
        let terminal = io::stdout().is_terminal().then(|| {
            let backend = CrosstermBackend::new(io::stdout());
            Terminal::with_options(backend, TerminalOptions { viewport })
        });
        let display = Self {
            terminal: terminal.and_then(io::Result::ok),
            began: Instant::now(),
            status: String::new(),
            moments: Vec::new(),
        };
        if display.terminal.is_none() {
            say(&format!("{}\n\n{}", about(), header()))?;
        }
        Ok(display)
    }

    pub fn status(&mut self, what: &str) -> Result<()> {
        what.clone_into(&mut self.status);
        self.update(&format!("-- {what}"))
    }

    pub fn show(&mut self, moment: &Moment) -> Result<()> {
        self.moments.push(moment.clone());
        self.update(&rows(moment).join("\n"))
    }

    /// Draws the picture again, or adds a line.
    fn update(&mut self, line: &str) -> Result<()> {
        let Some(terminal) = &mut self.terminal else {
            return say(line);
        };
        let seconds = self.began.elapsed().as_secs();
        let text = screen(&format!("{} ({seconds} s)", self.status), &self.moments);
        terminal
            .draw(|frame| frame.render_widget(text, frame.area()))
            .context("cannot draw on the terminal; pipe the output to get lines")?;
        Ok(())
    }
}

/// What matters in one look: the newest passage with estimates beside truth, and the three arms so
/// far.
fn screen(status: &str, moments: &[Moment]) -> Text<'static> {
    let (foot, top) = (thousands(FOOT as f64), thousands(TOP as f64));
    let about = format!(
        "Redis, SET of {VALUE_SIZE} B, one connection; the load climbs from {foot} to {top}/s"
    );
    let last = moments.last();
    let mut lines: Vec<Line<'_>> = vec![
        vec![
            " batchwise demo ".reversed().bold(),
            format!("  {status}").bold(),
        ]
        .into(),
        about.dark_gray().into(),
        header().dark_gray().into(),
    ];
    let of_last = last.map_or_else(Default::default, rows);
    lines.extend(of_last.map(|row| row.bold().into()));
    lines.push(Line::default());
    let found = bins(moments, SOME, Slice::latency);
    for (number, [load, cells @ ..]) in picture(&found).into_iter().enumerate() {
        let is_now =
            number > 0 && last.is_some_and(|m| m.offered_rps == found[number - 1].offered_rps);
        let load = if is_now { load.reversed() } else { load.into() };
        let cells = cells.into_iter().zip(COLORS);
        let cells = cells.map(|(cell, color)| cell.fg(color));
        lines.push(Line::from_iter([load].into_iter().chain(cells)));
    }
    let foot = "mean latency since a request was due, so far; Ctrl-C stops and writes the report";
    lines.extend([Line::default(), foot.dark_gray().into()]);
    Text::from(lines)
}

impl Drop for Display {
    fn drop(&mut self) {
        // The picture is printed again as text; whoever closed the terminal needs no cursor.
        if let Some(terminal) = &mut self.terminal {
            let _ = terminal.clear().and_then(|()| terminal.show_cursor());
        }
    }
}

fn about() -> String {
    let text = format!(
        "Redis over a veth pair, SET of {VALUE_SIZE} B values, one connection. The load climbs from \
         {} to {}/s, several times with TCP_NODELAY, with Nagle's algorithm, and with batchwise \
         choosing between them.\n\
         due, sent: mean latency since a request was due or sent, by the load generator.\n\
         client, server: batchwise's estimate of the latter from the TCP queues at that end, and its \
         error.\n\
         p99: the 99th percentile of the same, the median of slices of time.\n\
         cut: share of the time that does not count because the machine stood still or other work \
         took its CPUs.",
        thousands(FOOT as f64),
        thousands(TOP as f64),
    );
    textwrap::fill(&text, WIDTH)
}

/// Prints lines as they are.
fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .context("writing to standard output")
}

fn header() -> String {
    format!(
        "{:>5} {:>5} {:>6} {:>7} {:>7}  {:>7} {:>5}  {:>7} {:>5} {:>5}",
        "time", "nagle", "load", "due", "sent", "client", "error", "server", "error", "cut",
    )
}

/// Means, and below them 99th percentiles.
fn rows(moment: &Moment) -> [String; 2] {
    let truth = &moment.truth;
    let end = |side| {
        let estimate = maybe_duration(whole(moment.end(side)));
        format!("{estimate:>7} {:>5}", signed(moment.error(side)))
    };
    let end_p99 = |side| {
        let estimate = maybe_duration(moment.p99_ns.get(&side).copied());
        format!("{estimate:>7} {:>5}", signed(moment.p99_error(side)))
    };
    let means = format!(
        "{:>4.1}s {:>5} {:>6} {:>7} {:>7}  {}  {} {:>3.0} %{}",
        moment.at_s,
        nagle(moment.nagle),
        thousands(moment.offered_rps.round()),
        maybe_duration(truth.mean_from_intended_ns),
        maybe_duration(truth.mean_from_send_ns),
        end(Side::Client),
        end(Side::Server),
        moment.cut() * 100.0,
        if moment.saturated { " too much" } else { "" },
    );
    let tails = format!(
        "{:>18} {:>7} {:>7}  {}  {}",
        "p99",
        maybe_duration(truth.p99_ns),
        maybe_duration(truth.p99_from_send_ns),
        end_p99(Side::Client),
        end_p99(Side::Server),
    );
    [means, tails]
}

/// An error with its sign, or a dash.
fn signed(error: Option<f64>) -> String {
    error.map_or_else(
        || "–".into(),
        // Adding zero makes a negative one positive.
        |e| format!("{:+.0} %", (e * 100.0).round() + 0.0),
    )
}

/// "on", "off", "mixed", or a dash.
fn nagle(state: Option<Nagle>) -> &'static str {
    match state {
        Some(Nagle::On) => "on",
        Some(Nagle::Off) => "off",
        Some(Nagle::Mixed) => "mixed",
        None => "–",
    }
}

/// Three arms side by side at each load: a header, and rows of the load and of each arm's median with
/// a bar on a log scale.
fn picture(bins: &[Bin]) -> Vec<[String; 4]> {
    let all = || bins.iter().flat_map(|bin| bin.latency_ns.values());
    let low = all().map(|found| found.median).fold(f64::MAX, f64::min);
    let room = |name: &str| format!("   {name:<width$}", width = BAR + 1 + VALUE);
    let [a, b, c] = Arm::ALL.map(|arm| room(arm.label()));
    let mut rows = vec![[format!("{:>7}", "load"), a, b, c]];
    for bin in bins {
        let cell = |arm: Arm| {
            let bar = |ns: f64| {
                // 5 ms, from which on it is too much, is the whole bar.
                let share = (ns / low).ln() / (TOO_LONG / low).ln().max(1e-9);
                "█".repeat(1 + (share.clamp(0.0, 1.0) * (BAR - 1) as f64).round() as usize)
            };
            let (bar, value) = match bin.carried(arm) {
                Carried::Unknown => (String::new(), "–".to_owned()),
                Carried::TooMuch => ("█".repeat(BAR), "too much".to_owned()),
                Carried::In(ns) => (bar(ns), duration(ns)),
                Carried::Between(..) => {
                    let median = bin.latency_ns.get(&arm).map_or(0.0, |found| found.median);
                    (bar(median), format!("{} ?", duration(median)))
                }
            };
            format!("   {bar:<BAR$} {value:<VALUE$}")
        };
        let load = format!("{:>5}/s", thousands((bin.offered_rps / 1e3).round() * 1e3));
        let [a, b, c] = Arm::ALL.map(cell);
        rows.push([format!("{load:>7}"), a, b, c]);
    }
    rows
}

/// The picture as text; empty without anything on it.
pub fn text(bins: &[Bin]) -> String {
    if bins.iter().all(|bin| bin.latency_ns.is_empty()) {
        return String::new();
    }
    let rows = picture(bins).into_iter();
    let mut rows: Vec<_> = rows.map(|row| row.concat().trim_end().to_owned()).collect();
    if rows.iter().any(|row| row.contains(" ?")) {
        rows.push("?: its 95 % interval is wider than a factor of two".to_owned());
    }
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{climbs, moment};
    use super::*;
    use crate::engine::ratio::ENOUGH_PAIRS;

    #[test]
    fn three_arms_stand_side_by_side_at_each_load() {
        let slow = |arm, load: u64| match arm {
            Arm::Nodelay if load > 250_000 => 9e6,
            _ => 20e3,
        };
        let moments = climbs(slow);
        let text = text(&bins(&moments, ENOUGH_PAIRS, Slice::latency));
        assert_eq!(text.lines().count(), 11);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        let last = text.lines().last().unwrap();
        assert!(
            last.contains("305k/s   ██████████ too much    █          20 µs"),
            "{last}"
        );
        assert_eq!(super::text(&[]), "");
    }

    #[test]
    fn the_screen_shows_estimate_beside_truth_and_three_arms_also_before_there_are_any() {
        let moments = climbs(|_, _| 20e3);
        let (first, _) = moments.split_at(60);
        for (moments, parts) in [
            (&[][..], vec!["starting", "TCP_NODELAY", "Ctrl-C"]),
            (first, vec!["20 µs", "-10 %", "305k/s", "–"]),
        ] {
            let shown = screen("starting", moments);
            let lines: Vec<_> = shown.lines.iter().map(Line::to_string).collect();
            let text = lines.join("\n");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(lines.len() <= 24 && shown.width() <= 80, "{text}");
        }
    }

    #[test]
    fn a_row_has_the_columns_of_the_header_and_dashes_for_what_is_not_known() {
        let mut moment = moment(Arm::Nodelay, 0, 3, 23_400.0);
        let width = |text: &str| text.chars().count();
        let [means, tails] = rows(&moment);
        assert_eq!(width(&means), width(&header()));
        assert!(means.contains("125k") && means.contains("-10 %"));
        assert!(
            tails.contains("p99   70 µs   70 µs") && tails.contains("-10 %"),
            "{tails}"
        );
        let end = |row: &str, word: &str| width(&row[..row.rfind(word).unwrap()]);
        assert_eq!(end(&means, "-10 %"), end(&tails, "-10 %"));
        (moment.client, moment.nagle, moment.saturated) = (None, None, true);
        let [means, _] = rows(&moment);
        assert_eq!(means.matches('–').count(), 3);
        assert!(means.ends_with("too much"));
        assert!(width(&means) <= WIDTH);
    }
}
