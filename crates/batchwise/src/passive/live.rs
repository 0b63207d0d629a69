//! `batchwise passive --iface`: epochs as the kernel closes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::passive::{Attach, Config, PassiveSensor};
use batchwise_core::passive::report::TotalsLine;
use batchwise_core::passive::{Epoch, Params};

use super::session::Session;
use crate::frame::clock::{monotonic_ns, nanos, wall_clock_ns};
use crate::frame::ticks::{Ticks, Turn};

/// Events wait in a buffer of limited size.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Where, and how.
#[derive(Debug)]
pub struct Run {
    /// Name of the interface.
    pub interface: String,
    /// Where at it.
    pub attach: Attach,
    /// The XDP program that decides what becomes of packets.
    pub then: Option<PathBuf>,
    /// Destination ports; none: all.
    pub ports: Vec<u16>,
    /// Flows for which there is to be room.
    pub flows: u32,
    /// The estimator's.
    pub params: Params,
    /// UDP payloads of at most so many bytes are taken for acknowledgments.
    pub udp_acks: u16,
    /// A flow without a packet for so long is forgotten.
    pub forget: Duration,
    /// Between two reports.
    pub interval: Duration,
    /// Until it ends by itself.
    pub duration: Option<Duration>,
}

/// Attaches the program.
///
/// # Errors
/// The interface, the driver or the kernel does not allow it; each says the remedy.
pub fn attach(run: &Run) -> anyhow::Result<PassiveSensor> {
    PassiveSensor::attach(Config {
        interface: run.interface.clone(),
        attach: run.attach,
        ports: run.ports.clone(),
        flows: run.flows,
        params: run.params,
        udp_acks: run.udp_acks,
        forget: run.forget,
        then: run.then.clone(),
    })
    .with_context(|| {
        let interface = &run.interface;
        format!("cannot measure on {interface} (`batchwise doctor` checks what is needed)")
    })
}

/// Where the program is, in words.
pub fn place(sensor: &PassiveSensor, run: &Run) -> String {
    let hook = match sensor.attached() {
        Attach::Tc => "tc ingress",
        _ => "native XDP",
    };
    format!("{} ({hook})", run.interface)
}

/// Runs until the duration is over, the user quits, or `stop` is set.
///
/// # Errors
/// The kernel does not let us read, or the output is gone.
pub fn run(
    run: &Run,
    mut sensor: PassiveSensor,
    session: &mut Session,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut last = Instant::now();
    let mut ticks = Ticks::new(stop, run.interval, run.duration);
    loop {
        let turn = session.turn(&mut ticks, POLL_EVERY)?;
        take(sensor.poll()?, session);
        if turn == Turn::Look {
            continue;
        }
        let over = turn != Turn::Interval;
        let closed = if over {
            sensor.close_all()?
        } else {
            sensor.sweep()?
        };
        take(closed, session);
        let (now, totals) = (Instant::now(), totals(&sensor)?);
        session.interval(nanos(now - last).max(1), totals, over)?;
        last = now;
        if over {
            break;
        }
    }
    drop(sensor);
    session.finish()
}

fn take(epochs: Vec<Epoch>, session: &mut Session) {
    if epochs.is_empty() {
        return;
    }
    let now = wall_clock_ns();
    let ahead = now.cast_signed() - monotonic_ns().cast_signed();
    for epoch in epochs {
        let on_wall = Epoch {
            start: epoch.start.saturating_add_signed(ahead),
            end: epoch.end.saturating_add_signed(ahead),
            ..epoch
        };
        session.epoch(now, &on_wall);
    }
}

fn totals(sensor: &PassiveSensor) -> anyhow::Result<TotalsLine> {
    let counters = sensor.counters()?;
    Ok(TotalsLine {
        ts_ns: wall_clock_ns(),
        packets: counters.packets,
        measured: counters.measured,
        acks: counters.acks,
        fragments: counters.fragments,
        other: counters.other,
        malformed: counters.malformed,
        born: counters.born,
        evicted: counters.evicted,
        contended: counters.contended,
        lost_events: counters.lost_events,
        flows_live: sensor.flows_live(),
        flows_capacity: sensor.flows_capacity(),
    })
}
