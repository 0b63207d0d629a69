//! What every subcommand does alike. A subcommand is its arguments, its sensor, its state and rows.
//!
//! | piece | owns |
//! |---|---|
//! | [`args`] | ports and bounded times on the command line |
//! | [`ticks`], [`signals`] | the loop: intervals, duration, stop and hang-up |
//! | [`supervisor`] | what systemd is told: ready, alive, ending |
//! | [`rows`] | columns described once; text, a live table and JSON lines come from them |
//! | [`stdout`], [`background`] | writing that never holds up the loop |
//! | [`log`], [`lines`] | JSON lines in a file: reopened on a signal; a full disk drops and counts |
//! | [`metrics`] | families described once in a table, and the HTTP exporter |
//! | [`control`] | one line of JSON over a Unix socket, its owner's only |
//! | [`door`] | a Unix socket at which any user's applications come with descriptors |
//! | [`messages`] | what is said on standard error, also while a live view has the screen |
//! | [`page`] | what every page for a browser looks like |
//! | [`netlink`] | a socket to ask the kernel for links, routes and queues |
//! | [`memory`], [`descriptors`] | what the process takes of the machine |
//! | [`human`], [`clock`] | numbers and times for people, the clocks |
//!
//! A subcommand that stays goes round like this:
//!
//! ```ignore
//! let mut output = Output::open(format.resolve()?, WhenUnread::End, waiting(ports))?;
//! let mut ticks = Ticks::new(stop_flag()?, interval, duration);
//! loop {
//!     let turn = ticks.turn(look_every, |time| output.wait(time, None))?; // Look, Interval, End, Stopped
//!     // sense; at an interval's end estimate and act
//!     exporter.update(|metrics| metrics.interval(&view));
//!     log.line(&decision);
//!     output.show(&view)?;
//! }
//! ```
//!
//! It brings a [`rows::View`] (an interval: its rows, its JSON lines), a [`metrics::Metrics`] (a state
//! and its families), and for requests a type that is one line of JSON. Nothing of the frame knows a
//! subcommand.

pub mod args;
pub mod background;
pub mod clock;
pub mod control;
pub mod descriptors;
pub mod door;
pub mod human;
pub mod lines;
pub mod log;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod netlink;
pub mod page;
pub mod rows;
pub mod signals;
pub mod stdout;
pub mod supervisor;
pub mod ticks;
pub mod whole;
