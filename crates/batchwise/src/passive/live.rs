//! `batchwise passive --iface`: epochs as the kernel closes them.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::passive::{Attach, Config, PassiveSensor};
use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::TotalsLine;

use super::args::{Estimator, PassiveArgs};
use super::interval::Interval;
use super::metrics::PassiveMetrics;
use super::session::Session;
use crate::frame::clock::{monotonic_ns, nanos, wall_clock_ns};
use crate::frame::rows::waiting;
use crate::frame::run::{Agent, Runner};
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};

/// Runs until the duration is over, the user quits, or a signal comes.
pub fn run(args: &PassiveArgs, interface: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        !matches!(args.estimator, Estimator::Paper(_)),
        "--estimator paper needs --pcap: the kernel runs auto, modes and fixed:DELTA"
    );
    let stay = &args.run.stay;
    let form = stay.format.resolve()?;
    let mut session = Session::begin(args, form, interface.to_owned())?;
    let when_unread = WhenUnread::serving(stay.metrics.is_some());
    let ports: Vec<_> = args.ports.iter().map(u16::to_string).collect();
    let runner = Runner::open(&args.run, form, when_unread, waiting(&ports))?;
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
    let sensor = PassiveSensor::attach(config).with_context(|| {
        format!("cannot measure on {interface} (`batchwise doctor` checks what is needed)")
    })?;
    session.attached_at(match sensor.attached() {
        Attach::Tc => "tc ingress",
        _ => "native XDP",
    });
    runner.run(&mut Path {
        interface,
        sensor: Some(sensor),
        session,
        last: Instant::now(),
    })
}

/// What passes an interface is measured.
struct Path<'a> {
    interface: &'a str,
    /// None: it is detached.
    sensor: Option<PassiveSensor>,
    session: Session<'a>,
    /// When the last interval was closed.
    last: Instant,
}

impl Path<'_> {
    fn take(&mut self, epochs: Vec<Epoch>) {
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
            self.session.epoch(now, &on_wall);
        }
    }
}

impl Agent for Path<'_> {
    type View = Interval;
    type Metrics = PassiveMetrics;

    /// Events wait in a buffer of limited size.
    fn due(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn look(&mut self, _turn: Turn, _ticks: &mut Ticks) -> anyhow::Result<()> {
        let closed = self.sensor.as_mut().map(PassiveSensor::poll).transpose()?;
        self.take(closed.unwrap_or_default());
        Ok(())
    }

    fn close(&mut self, turn: Turn) -> anyhow::Result<Option<Interval>> {
        let Some(sensor) = &mut self.sensor else {
            return Ok(None);
        };
        if !sensor.is_attached() {
            let interface = self.interface;
            bail!("{interface} is gone, and the measuring with it: start again when it is back");
        }
        let closed = if turn.is_last() {
            sensor.close_all()?
        } else {
            sensor.sweep()?
        };
        let (now, totals) = (Instant::now(), totals(sensor)?);
        self.take(closed);
        let interval_ns = nanos(now - self.last).max(1);
        self.last = now;
        Ok(Some(self.session.close(
            interval_ns,
            totals,
            turn.is_last(),
        )))
    }

    fn serve(&mut self, _interval: &Interval, metrics: &mut PassiveMetrics) {
        self.session.serve(metrics);
    }

    fn end(&mut self) -> anyhow::Result<String> {
        self.sensor = None;
        self.session.end()
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
