//! Where the demo shows itself: a live screen on a terminal, else one line a second; and the plain
//! lines at its end.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::sense::report::{Estimator, Nagle, Side};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::window::EndEstimate;

use super::moment::Moment;
use super::plan::{self, Phase, Plan, VALUE_SIZE};
use super::screen::Screen;
use super::view::View;
use crate::machine::Machine;
use crate::plot::{maybe_duration, thousands};

/// Columns of an ordinary terminal.
const WIDTH: usize = 79;

/// What there is to show.
pub struct Story<'a> {
    /// The climb that is under way.
    pub phase: Phase,
    /// Since the first climb began.
    pub elapsed: Duration,
    /// Of all climbs.
    pub length: Duration,
    /// So far.
    pub moments: &'a [Moment],
}

/// Something that shows the demo while it runs.
pub trait Display {
    /// What is being done now.
    fn status(&mut self, what: &str) -> Result<()>;
    /// There is a new moment.
    fn show(&mut self, story: &Story<'_>) -> Result<()>;
    /// Gives the terminal back.
    fn finish(&mut self) -> Result<()>;
}

/// What fits standard output. A user who quits sets `stop`.
pub fn open(machine: &Machine, plan: &Plan, stop: &Stop) -> Result<Box<dyn Display>> {
    let note = one_cpu(machine);
    if io::stdout().is_terminal() {
        let view = View::new(note, plan.length());
        return Ok(Box::new(Screen::open(view, stop.clone())?));
    }
    let (foot, top) = plan::climb();
    let about = format!(
        "Redis over a veth pair, SET of {VALUE_SIZE} B values, one connection; the load climbs \
         from {} to {}/s, first with TCP_NODELAY, then with Nagle's algorithm, then with \
         batchwise choosing between them.\n\
         measured: by the load generator, mean since the send (intended: since it was due).\n\
         client, server: batchwise's estimate from the TCP queues at that end, its error and its \
         confidence.{}",
        thousands(foot as f64),
        thousands(top as f64),
        note.map_or_else(String::new, |note| format!("\n{note}")),
    );
    say(&textwrap::fill(&about, header().chars().count()))?;
    Ok(Box::new(Lines { headed: false }))
}

/// What to know about a machine that has one CPU only.
pub fn one_cpu(machine: &Machine) -> Option<&'static str> {
    (machine.cpus == 1).then_some(
        "This machine has one CPU: server and load generator share it, so that latencies are high \
         and the load that can be carried is low.",
    )
}

/// Prints paragraphs, in lines that fit an ordinary terminal.
pub fn print_paragraphs<'a>(paragraphs: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let wrapped = paragraphs
        .into_iter()
        .map(|text| textwrap::fill(text, WIDTH));
    say(&format!("\n{}", wrapped.collect::<Vec<_>>().join("\n")))
}

/// Prints lines as they are.
pub fn print_lines(text: &str) -> Result<()> {
    say(&format!("\n{text}"))
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())
        .and_then(|()| out.flush())
        .context("writing to standard output")
}

/// One line a second.
struct Lines {
    headed: bool,
}

impl Display for Lines {
    fn status(&mut self, what: &str) -> Result<()> {
        say(&format!("-- {what}"))
    }

    fn show(&mut self, story: &Story<'_>) -> Result<()> {
        if !std::mem::replace(&mut self.headed, true) {
            say(&header())?;
        }
        story.moments.last().map_or(Ok(()), |m| say(&row(m)))
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

fn header() -> String {
    format!(
        "{:>5} {:>5} {:>8} {:>8}  {:>8} {:>8}  {:>8} {:>6} {:>4}  {:>8} {:>6} {:>4}  {:>7} {:>7}",
        "time",
        "nagle",
        "offered",
        "achieved",
        "measured",
        "intended",
        "client",
        "error",
        "conf",
        "server",
        "error",
        "conf",
        "network",
        "app",
    )
}

fn row(moment: &Moment) -> String {
    let truth = &moment.truth;
    let end = |side| {
        let found = moment.end(side);
        format!(
            "{:>8} {:>6} {:>4}",
            maybe_duration(found.and_then(|e| e.total_ns)),
            error(moment, side),
            found.map_or_else(|| "–".into(), |e| format!("{:.2}", e.confidence)),
        )
    };
    let client = moment.client.as_ref();
    format!(
        "{:>4.0}s {:>5} {:>8} {:>8}  {:>8} {:>8}  {}  {}  {:>7} {:>7}{}",
        moment.at_s,
        nagle(moment.nagle),
        thousands(moment.offered_rps),
        thousands(truth.achieved_rps),
        maybe_duration(truth.mean_from_send_ns),
        maybe_duration(truth.mean_from_intended_ns),
        end(Side::Client),
        end(Side::Server),
        maybe_duration(client.and_then(|e| e.network_ns)),
        maybe_duration(client.and_then(|e| e.turnaround_ns)),
        if moment.saturated { "  too much" } else { "" },
    )
}

/// The error of an end's estimate, with its sign, or a dash.
pub fn error(moment: &Moment, side: Side) -> String {
    moment.error(side).map_or_else(
        || "–".into(),
        |e| {
            // Adding zero makes a negative one positive.
            format!("{:+.0} %", (e * 100.0).round() + 0.0)
        },
    )
}

/// "on", "off", "mixed", or a dash.
pub fn nagle(state: Option<Nagle>) -> &'static str {
    match state {
        Some(Nagle::On) => "on",
        Some(Nagle::Off) => "off",
        Some(Nagle::Mixed) => "mixed",
        None => "–",
    }
}

/// What an estimate rests on.
pub fn estimator(end: &EndEstimate) -> &'static str {
    match end.estimator {
        Estimator::TwoSided => "two-sided",
        Estimator::Local => "this end only",
        Estimator::Hint => "hint",
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::moment;
    use super::*;

    #[test]
    fn a_row_has_the_columns_of_the_header() {
        let row = row(&moment(12, true, 123_456.0, 23_400.0, 25_740.0));
        let words = |text: &str| text.chars().count();
        assert_eq!(words(&row), words(&header()));
        assert!(row.contains("123.5k") && row.contains("+10 %") && row.contains("26 µs"));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut unknown = moment(1, false, 1e5, 2e4, 2e4);
        (unknown.client, unknown.nagle) = (None, None);
        assert_eq!(row(&unknown).matches('–').count(), 6);
    }

    #[test]
    fn an_error_that_rounds_to_nothing_is_not_negative() {
        let near = moment(1, true, 1e5, 20_000.0, 19_990.0);
        assert_eq!(error(&near, Side::Client), "+0 %");
    }

    #[test]
    fn a_second_with_too_much_load_says_so() {
        assert!(row(&moment(1, true, 3e5, 9e6, 9e6)).ends_with("too much"));
    }
}
