//! What every subcommand does alike. A subcommand is its arguments, its sensor, its state and rows.
//!
//! | piece | owns |
//! |---|---|
//! | [`args`] | what subcommands have in common on the command line, bounded times |
//! | [`run`] | the runner: outputs, intervals, the order of things |
//! | [`ticks`], [`signals`] | intervals, duration, stop and hang-up |
//! | [`supervisor`] | what systemd is told: ready, alive, ending |
//! | [`rows`] | columns described once; text, a live table and JSON lines come from them |
//! | [`stdout`], [`background`] | writing that never holds up the loop |
//! | [`log`], [`lines`] | JSON lines in a file: reopened on a signal; a full disk drops and counts |
//! | [`metrics`] | families described once in a table, and the HTTP exporter |
//! | [`companion`], [`tls`] | a thread beside the loop until it is no longer needed; whom to trust when asking others |
//! | [`control`] | one line of JSON over a Unix socket, its owner's only |
//! | [`door`] | a Unix socket at which any user's applications come with descriptors |
//! | [`messages`] | what is said on standard error, also while a live view has the screen |
//! | [`page`] | what every page for a browser looks like |
//! | [`netlink`] | a socket to ask the kernel for links, routes and queues |
//! | [`memory`], [`descriptors`] | what the process takes of the machine |
//! | [`human`], [`clock`] | numbers and times for people, the clocks |
//!
//! A subcommand that stays opens its outputs ([`run::Runner::open`]), attaches its sensor, and gives the runner a
//! [`run::Agent`]. It brings a [`rows::View`] (an interval: its rows, its JSON lines), a [`metrics::Metrics`] (a state
//! and its families), and for requests a type that is one line of JSON. Nothing of the frame knows a
//! subcommand.
//!
//! `tune` goes round by itself, with the same pieces: its guard wants a heartbeat within each step, tests take turns
//! of their own, and a decision is shown when it is made, not at the end of an interval.

pub mod args;
pub mod background;
pub mod chart;
pub mod clock;
pub mod companion;
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
pub mod run;
pub mod signals;
pub mod stdout;
pub mod supervisor;
pub mod ticks;
pub mod tls;
pub mod whole;
