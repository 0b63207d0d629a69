//! `batchwise passive --pcap`: the same estimator over a capture, whose packets bring their own time.

use std::io::Cursor;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

mod direction;
mod file;
mod flows;
pub mod frame;

use batchwise_core::passive::report::TotalsLine;

use super::args::{Estimator, PassiveArgs};
use super::interval::Interval;
use super::metrics::PassiveMetrics;
use super::session::Session;
use crate::frame::clock::nanos;
use crate::frame::rows::Form;
use crate::frame::run::Outputs;
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use file::Capture;
use flows::{Flows, Settings};

/// Reads a capture to its end. What was read before an error is shown.
pub fn run(args: &PassiveArgs, path: &Path) -> anyhow::Result<()> {
    // a capture may pass in a moment: there is nothing to look at while it does
    let form = args.run.stay.format.without_live()?;
    replay(args, Capture::open(path, &stop_flag()?)?, form)
}

fn replay(args: &PassiveArgs, mut capture: Capture, form: Form) -> anyhow::Result<()> {
    let session = Session::begin(args, form, capture.name().to_owned())?;
    let settings = Settings {
        params: args.params(),
        paper: match args.estimator {
            Estimator::Paper(epsilon) => Some(epsilon),
            Estimator::Auto | Estimator::Modes | Estimator::Fixed(_) => None,
        },
        flows: NonZeroUsize::new(args.flows as usize).unwrap_or(NonZeroUsize::MIN),
        udp_acks: args.udp_acks.into(),
        forget_ns: nanos(args.forget()),
    };
    let mut replay = Replay {
        session,
        // packets wait for their output
        outputs: Outputs::open(&args.run.stay, form, WhenUnread::Wait, String::new())?,
        flows: Flows::new(settings, args.ports.clone()),
        interval_ns: nanos(args.run.interval),
        interval_start: None,
        now: 0,
    };
    let read = replay.read(&mut capture, args.run.stay.duration.map(nanos));
    replay.finish()?;
    read
}

/// As [`run`], with the bytes of a file, for the fuzzer.
pub fn read(args: &PassiveArgs, bytes: Vec<u8>) -> anyhow::Result<()> {
    let (source, stop) = (Box::new(Cursor::new(bytes)), Arc::default());
    replay(
        args,
        Capture::read("-".to_owned(), source, &stop)?,
        Form::Jsonl,
    )
}

/// Time as the capture tells it.
struct Replay<'a> {
    session: Session<'a>,
    outputs: Outputs<Interval, PassiveMetrics>,
    flows: Flows,
    interval_ns: u64,
    interval_start: Option<u64>,
    now: u64,
}

impl Replay<'_> {
    fn read(&mut self, capture: &mut Capture, duration_ns: Option<u64>) -> anyhow::Result<()> {
        let mut end = None;
        while let Some(packet) = capture.next()? {
            if !frame::is_known(packet.link) {
                let what = format!(
                    "its link type {:?} is not known here; capture on Ethernet, on a tunnel (raw \
                     IP), or on all interfaces (tcpdump -i any)",
                    packet.link
                );
                return Err(capture.complain(&what));
            }
            let end = *end.get_or_insert_with(|| {
                duration_ns.map_or(u64::MAX, |duration| packet.at_ns.saturating_add(duration))
            });
            if packet.at_ns >= end {
                break;
            }
            self.advance(packet.at_ns)?;
            let frame = frame::dissect(packet.link, packet.data, packet.length);
            self.flows.packet(packet.at_ns, &frame);
        }
        Ok(())
    }

    /// Ends the intervals before `now`. Time that steps back is as if it stood still.
    fn advance(&mut self, now: u64) -> anyhow::Result<()> {
        self.now = self.now.max(now);
        let start = *self.interval_start.get_or_insert(now);
        let mut end = start.saturating_add(self.interval_ns);
        while end <= now {
            self.flows.sweep(end);
            self.close(end, self.interval_ns, self.flows.totals(end), false)?;
            if self.session.is_silent() {
                // nothing to say of the intervals until the next packet
                end += (now - end) / self.interval_ns * self.interval_ns;
            }
            self.interval_start = Some(end);
            end = end.saturating_add(self.interval_ns);
        }
        Ok(())
    }

    /// Shows the interval that ends now.
    fn close(
        &mut self,
        now: u64,
        interval_ns: u64,
        totals: TotalsLine,
        over: bool,
    ) -> anyhow::Result<()> {
        for epoch in self.flows.closed() {
            self.session.epoch(now, &epoch);
        }
        let interval = self.session.close(interval_ns, totals, over);
        let session = &self.session;
        let serve = |_: &_, metrics: &mut _| session.serve(metrics);
        self.outputs.publish(Some(&interval), serve)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let start = self.interval_start.unwrap_or(self.now);
        let totals = self.flows.totals(self.now);
        self.flows.finish(self.now);
        let interval_ns = (self.now - start.min(self.now)).max(1);
        self.close(self.now, interval_ns, totals, true)?;
        let last = self.session.end()?;
        self.outputs.finish(&last)
    }
}
