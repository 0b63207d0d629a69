//! `batchwise passive --pcap`: the same estimator over a capture, whose packets bring their own time.

use std::time::Duration;

mod direction;
mod file;
mod flows;
mod frame;

pub use file::Capture;
pub use flows::Settings;

use super::session::Session;
use crate::frame::clock::nanos;
use flows::Flows;

/// What of a capture, and how.
#[derive(Debug)]
pub struct Run<'a> {
    /// Destination ports; none: all.
    pub ports: &'a [u16],
    /// Between two reports.
    pub interval: Duration,
    /// Of the capture's time.
    pub duration: Option<Duration>,
    /// How flows are measured.
    pub settings: Settings,
}

/// Reads a capture to its end. What was read before an error is shown.
///
/// # Errors
/// The capture is broken, or the output is gone.
pub fn run(run: &Run<'_>, mut capture: Capture, session: &mut Session) -> anyhow::Result<()> {
    let mut replay = Replay {
        flows: Flows::new(run.settings, run.ports.to_vec()),
        interval_ns: nanos(run.interval),
        interval_start: None,
        now: 0,
    };
    let read = read(run, &mut capture, &mut replay, session);
    replay.finish(session)?;
    read
}

fn read(
    run: &Run<'_>,
    capture: &mut Capture,
    replay: &mut Replay,
    session: &mut Session,
) -> anyhow::Result<()> {
    let mut end = None;
    while let Some(packet) = capture.next()? {
        if !frame::is_known(packet.link) {
            let what = format!(
                "its link type {:?} is not known here; capture on Ethernet, on a tunnel (raw IP), or \
                 on all interfaces (tcpdump -i any)",
                packet.link
            );
            return Err(capture.complain(&what));
        }
        let end = end.get_or_insert_with(|| {
            let duration = run.duration.map(nanos);
            duration.map(|duration| packet.at_ns.saturating_add(duration))
        });
        if end.is_some_and(|end| packet.at_ns >= end) {
            break;
        }
        replay.advance(packet.at_ns, session)?;
        let frame = frame::dissect(packet.link, packet.data, packet.length);
        replay.flows.packet(packet.at_ns, &frame);
    }
    Ok(())
}

/// Time as the capture tells it.
struct Replay {
    flows: Flows,
    interval_ns: u64,
    interval_start: Option<u64>,
    now: u64,
}

impl Replay {
    /// Ends the intervals before `now`. Time that steps back is as if it stood still.
    fn advance(&mut self, now: u64, session: &mut Session) -> anyhow::Result<()> {
        self.now = self.now.max(now);
        let start = *self.interval_start.get_or_insert(now);
        let mut end = start.saturating_add(self.interval_ns);
        while end <= now {
            self.flows.sweep(end);
            self.report(end, self.interval_ns, session, false)?;
            if session.is_silent() {
                // nothing to say of the intervals until the next packet
                end += (now - end) / self.interval_ns * self.interval_ns;
            }
            self.interval_start = Some(end);
            end = end.saturating_add(self.interval_ns);
        }
        Ok(())
    }

    fn report(
        &mut self,
        end: u64,
        interval_ns: u64,
        session: &mut Session,
        over: bool,
    ) -> anyhow::Result<()> {
        for epoch in self.flows.closed() {
            session.epoch(end, &epoch);
        }
        session.interval(interval_ns, self.flows.totals(end), over)
    }

    fn finish(mut self, session: &mut Session) -> anyhow::Result<()> {
        let start = self.interval_start.unwrap_or(self.now);
        let totals = self.flows.totals(self.now);
        self.flows.finish(self.now);
        for epoch in self.flows.closed() {
            session.epoch(self.now, &epoch);
        }
        session.interval((self.now - start.min(self.now)).max(1), totals, true)?;
        session.finish()
    }
}
