//! What `batchwise watch` shows: a [`Sink`] takes the lines of every interval and writes them for
//! programs (JSON lines), for a log (text) or for a person at a terminal (live view).
//! [`metrics`] offers the same lines to Prometheus.

use std::io::{self, IsTerminal};
use std::time::Duration;

use batchwise_core::report::Line;

pub mod exporter;
mod human;
mod jsonl;
mod live;
pub mod log;
pub mod metrics;
mod parts;
mod pipe;
mod plain;
#[cfg(test)]
mod samples;
mod view;

pub use pipe::Closed;
use pipe::Watched;

/// How lines are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Live on a terminal, text otherwise.
    #[default]
    Auto,
    /// A view that is redrawn every interval; needs a terminal.
    Live,
    /// Aligned columns, one row a service and interval.
    Text,
    /// One JSON object a service and interval.
    Jsonl,
}

/// Takes the lines of every interval. The caller alternates [`Sink::interval`] with
/// [`Sink::poll_quit`] and ends with [`Sink::finish`]; dropping a sink also puts the terminal back.
pub trait Sink {
    /// Shows the lines of the interval that just ended; none means that there was no traffic.
    ///
    /// # Errors
    /// [`Closed`] when nobody reads the output any more, which `main` takes for a quiet end.
    fn interval(&mut self, lines: &[Line]) -> anyhow::Result<()>;

    /// Waits for at most `timeout`. True means: stop, the user or the reader of the output has
    /// left. It may return false early (a signal, a key); call it until the interval is over.
    ///
    /// # Errors
    /// The terminal or the output cannot be waited for.
    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool>;

    /// Puts the terminal back.
    ///
    /// # Errors
    /// The terminal does not take its old state.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Opens standard output in the wanted format. `ports` are named while there is no traffic.
///
/// # Errors
/// The live view is wanted and standard output is no terminal, or it cannot be set up.
pub fn open(format: Format, ports: &[u16]) -> anyhow::Result<Box<dyn Sink>> {
    let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let waiting = waiting(ports);
    Ok(match format {
        Format::Auto if terminal => Box::new(live::Live::open(waiting)?),
        Format::Auto | Format::Text => Box::new(plain::Plain::new(io::stdout(), waiting)),
        Format::Live if terminal => Box::new(live::Live::open(waiting)?),
        Format::Live => {
            anyhow::bail!("the live view needs a terminal; use --format text or --format jsonl")
        }
        Format::Jsonl => Box::new(jsonl::Jsonl::new(io::stdout())),
    })
}

fn waiting(ports: &[u16]) -> String {
    match ports {
        [] => "waiting for traffic…".to_owned(),
        [port] => format!("waiting for traffic on port {port}…"),
        ports => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("waiting for traffic on ports {}…", ports.join(", "))
        }
    }
}
