//! `batchwise passive --iface`: epochs as the kernel closes them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::passive::{Attach, Config, PassiveSensor};
use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::TotalsLine;

use super::args::{Estimator, PassiveArgs};
use super::session::Session;
use crate::frame::clock::{monotonic_ns, nanos, wall_clock_ns};
use crate::frame::rows::Form;
use crate::frame::ticks::{Ticks, Turn};

/// Events wait in a buffer of limited size.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Runs until the duration is over, the user quits, or `stop` is set.
pub fn run(
    args: &PassiveArgs,
    interface: &str,
    form: Form,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        !matches!(args.estimator, Estimator::Paper(_)),
        "--estimator paper needs --pcap: the kernel runs auto, modes and fixed:DELTA"
    );
    let config = Config {
        interface: interface.to_owned(),
        attach: args.attach.into(),
        ports: args.ports.clone(),
        flows: args.flows,
        params: args.params(),
        udp_acks: args.udp_acks,
        forget: args.forget(),
        then: args.then.clone(),
    };
    let mut session = Session::open(args, form, interface.to_owned())?;
    let mut sensor = PassiveSensor::attach(config).with_context(|| {
        format!("cannot measure on {interface} (`batchwise doctor` checks what is needed)")
    })?;
    session.attached_at(match sensor.attached() {
        Attach::Tc => "tc ingress",
        _ => "native XDP",
    });
    let mut last = Instant::now();
    let mut ticks = Ticks::new(stop, args.interval, args.duration);
    loop {
        let turn = session.turn(&mut ticks, POLL_EVERY)?;
        take(sensor.poll()?, &mut session);
        if turn == Turn::Look {
            continue;
        }
        if !sensor.is_attached() {
            bail!("{interface} is gone, and the measuring with it: start again when it is back");
        }
        let over = turn != Turn::Interval;
        let closed = if over {
            sensor.close_all()?
        } else {
            sensor.sweep()?
        };
        take(closed, &mut session);
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

fn take(epochs: Vec<Epoch>, session: &mut Session<'_>) {
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
        epochs_left_out: 0, // the session knows
    })
}
