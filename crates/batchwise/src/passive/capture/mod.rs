//! `batchwise passive --pcap`: the same estimator over a capture, whose packets bring their own time.

use std::io::Cursor;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

mod direction;
mod file;
mod flows;
pub mod frame;

use super::args::{Estimator, PassiveArgs};
use super::session::Session;
use crate::frame::clock::nanos;
use crate::frame::rows::{Form, Format};
use file::Capture;
use flows::{Flows, Settings};

/// Reads a capture to its end. What was read before an error is shown.
pub fn run(
    args: &PassiveArgs,
    path: &Path,
    form: Form,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    // a capture may pass in a moment: there is nothing to look at while it does
    anyhow::ensure!(
        args.format != Format::Live,
        "the live view needs --iface; use --format text or --format jsonl for a capture"
    );
    let form = if form == Form::Live { Form::Text } else { form };
    replay(args, Capture::open(path, stop)?, form)
}

fn replay(args: &PassiveArgs, mut capture: Capture, form: Form) -> anyhow::Result<()> {
    let mut session = Session::open(args, form, capture.name().to_owned())?;
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
        flows: Flows::new(settings, args.ports.clone()),
        interval_ns: nanos(args.interval),
        interval_start: None,
        now: 0,
    };
    let read = replay.read(&mut capture, args.duration.map(nanos), &mut session);
    replay.finish(&mut session)?;
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
struct Replay {
    flows: Flows,
    interval_ns: u64,
    interval_start: Option<u64>,
    now: u64,
}

impl Replay {
    fn read(
        &mut self,
        capture: &mut Capture,
        duration_ns: Option<u64>,
        session: &mut Session<'_>,
    ) -> anyhow::Result<()> {
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
            self.advance(packet.at_ns, session)?;
            let frame = frame::dissect(packet.link, packet.data, packet.length);
            self.flows.packet(packet.at_ns, &frame);
        }
        Ok(())
    }

    /// Ends the intervals before `now`. Time that steps back is as if it stood still.
    fn advance(&mut self, now: u64, session: &mut Session<'_>) -> anyhow::Result<()> {
        self.now = self.now.max(now);
        let start = *self.interval_start.get_or_insert(now);
        let mut end = start.saturating_add(self.interval_ns);
        while end <= now {
            self.flows.sweep(end);
            self.show(end, session);
            session.interval(self.interval_ns, self.flows.totals(end), false)?;
            if session.is_silent() {
                // nothing to say of the intervals until the next packet
                end += (now - end) / self.interval_ns * self.interval_ns;
            }
            self.interval_start = Some(end);
            end = end.saturating_add(self.interval_ns);
        }
        Ok(())
    }

    /// The epochs that have closed.
    fn show(&mut self, now: u64, session: &mut Session<'_>) {
        for epoch in self.flows.closed() {
            session.epoch(now, &epoch);
        }
    }

    fn finish(mut self, session: &mut Session<'_>) -> anyhow::Result<()> {
        let start = self.interval_start.unwrap_or(self.now);
        let totals = self.flows.totals(self.now);
        self.flows.finish(self.now);
        self.show(self.now, session);
        session.interval((self.now - start.min(self.now)).max(1), totals, true)?;
        session.finish()
    }
}
