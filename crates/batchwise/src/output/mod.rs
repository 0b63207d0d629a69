//! What `batchwise watch` shows: a [`Sink`] takes the lines of every interval and writes them for
//! programs (JSON lines), for a log (text) or for a person at a terminal (live view).
//! [`metrics`] offers the same lines to Prometheus. Terminal, pipe and numbers serve `passive`, too.

use std::io::{self, IsTerminal};
use std::time::Duration;

use batchwise_core::sense::report::Line;

pub mod aside;
pub mod exporter;
pub mod human;
mod jsonl;
pub mod live;
pub mod log;
pub mod metrics;
mod parts;
#[cfg(test)]
pub mod picture;
pub mod pipe;
mod plain;
#[cfg(test)]
mod samples;
pub mod view;

use aside::Aside;
pub use pipe::Closed;
use pipe::Watched;
use view::View;

/// How lines are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Live on a terminal, text otherwise.
    #[default]
    Auto,
    /// A view that is redrawn every interval; needs a terminal.
    Live,
    /// Aligned columns, one row a service and interval.
    #[value(alias = "plain")]
    Text,
    /// One JSON object a service and interval.
    Jsonl,
}

/// Takes the lines of every interval. The caller alternates [`Sink::interval`] with
/// [`Sink::poll_quit`] and ends with [`Sink::finish`]; dropping a sink also puts the terminal back.
pub trait Sink<I: ?Sized = [Line]> {
    /// Shows the lines of the interval that just ended; none means that there was no traffic.
    ///
    /// # Errors
    /// [`Closed`] when nobody reads the output any more, which `main` takes for a quiet end.
    fn interval(&mut self, lines: &I) -> anyhow::Result<()>;

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
    let waiting = waiting(ports);
    Ok(match format.resolve()? {
        Form::Live => Box::new(live::Live::open(View::new(waiting))?),
        Form::Text => Box::new(plain::Plain::new(Aside::stdout(), waiting)),
        Form::Jsonl => Box::new(jsonl::Jsonl::new(Aside::stdout())),
    })
}

/// What a [`Format`] comes to on this standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On the terminal.
    Live,
    /// Text.
    Text,
    /// JSON lines.
    Jsonl,
}

impl Format {
    /// Looks at what standard output is.
    ///
    /// # Errors
    /// The live view is wanted and standard output is no terminal.
    pub fn resolve(self) -> anyhow::Result<Form> {
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        Ok(match self {
            Self::Auto | Self::Live if terminal => Form::Live,
            Self::Auto | Self::Text => Form::Text,
            Self::Live => {
                anyhow::bail!("the live view needs a terminal; use --format text or --format jsonl")
            }
            Self::Jsonl => Form::Jsonl,
        })
    }
}

/// What to say while there is no traffic.
pub fn waiting(ports: &[u16]) -> String {
    match ports {
        [] => "waiting for traffic…".to_owned(),
        [port] => format!("waiting for traffic on port {port}…"),
        ports => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("waiting for traffic on ports {}…", ports.join(", "))
        }
    }
}
