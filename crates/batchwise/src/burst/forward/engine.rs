//! The thread that forwards: batches in, the discipline's verdict for each frame, frames out as the link is
//! free. It allocates nothing once it runs, and sleeps only while the queue is empty.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use batchwise_bpf::burst::forward::{Forwarder, Frame, Lost};
use batchwise_bpf::monotonic_ns;
use batchwise_core::burst::Verdict;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::SHORTEST;
use super::discipline::Discipline;
use super::packet::{Checksum, Reader};
use super::queue::{Length, Queue};
use super::sources::Sources;

/// Frames that are taken from an interface before the other, and the link, have their turn.
const BATCH: usize = 64;
/// What is counted is told so often, ns.
const TELL: u64 = 1_000_000;
/// The kernel is asked what it lost so often, ns.
const ASK: u64 = 100_000_000;
/// The flag that ends the thread is looked at so often while nothing arrives, ms.
const SLEEP: u8 = 100;
/// So often while the interface takes no frame, ms.
const RETRY: u8 = 1;
/// A checksum looks as if it had been left to the card once in 65,536 times; of so many frames, and half of
/// all, that is no chance.
const LEFT: u64 = 3;

/// What was forwarded so far, and the queue as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets and bytes that left the queue.
    pub forwarded: (u64, u64),
    /// Packets and bytes that went back.
    pub returned: (u64, u64),
    /// Packets by verdict.
    pub taken: u64,
    pub full: u64,
    pub admitted: u64,
    pub promised: u64,
    pub last: u64,
    pub refused: u64,
    pub denied: u64,
    /// Packets on their way back for which there was no room.
    pub return_dropped: u64,
    /// What the kernel lost of each interface.
    pub lost: [Lost; 2],
    /// Frames outside of the queue that is heard.
    pub other_queue: u64,
    /// Marks that were taken off.
    pub cleared: u64,
    pub queued: Length,
    pub highest: Length,
    pub reserved: u32,
    pub behind_ns: u64,
}

impl Counts {
    fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Taken => &mut self.taken,
            Verdict::Full => &mut self.full,
            Verdict::Admitted => &mut self.admitted,
            Verdict::Promised => &mut self.promised,
            Verdict::Last => &mut self.last,
            Verdict::Refused => &mut self.refused,
            Verdict::Denied => &mut self.denied,
        } += 1;
    }
}

/// Checksums of an interface's frames.
#[derive(Clone, Copy, Debug, Default)]
struct Checksums {
    made: u64,
    left: u64,
    said: bool,
}

impl Checksums {
    fn count(&mut self, checksum: Checksum) {
        match checksum {
            Checksum::None => {}
            Checksum::Made => self.made += 1,
            Checksum::Left => self.left += 1,
        }
    }

    /// Says it once. It is no reason to end: whoever sends can forge such frames.
    fn check(&mut self, whose: &str) {
        if !self.said && self.left >= LEFT && self.left >= self.made {
            self.said = true;
            tracing::warn!(
                "packets arrive at {whose} without their checksums, and are thrown away by whom they are for: \
                 `ethtool -K IF tx off` at the far end of the veth pair, where IF is its name"
            );
        }
    }
}

/// All that the thread has.
pub struct Engine {
    forwarder: Forwarder,
    queue: Queue<Frame>,
    discipline: Discipline,
    reader: Reader,
    /// Marks are taken off.
    border: bool,
    counts: Counts,
    sources: Arc<Mutex<Sources>>,
    checksums: [Checksums; 2],
    shared: Arc<Mutex<Counts>>,
    told: u64,
    asked: u64,
}

impl Engine {
    pub fn new(
        forwarder: Forwarder,
        queue: Queue<Frame>,
        discipline: Discipline,
        reader: Reader,
        border: bool,
        shared: Arc<Mutex<Counts>>,
        sources: Arc<Mutex<Sources>>,
    ) -> Self {
        Self {
            forwarder,
            queue,
            discipline,
            reader,
            border,
            counts: Counts::default(),
            sources,
            checksums: Default::default(),
            shared,
            told: 0,
            asked: 0,
        }
    }

    /// Forwards until `end` is set; what is in the queue then is dropped with it.
    pub fn run(mut self, end: &AtomicBool) -> anyhow::Result<()> {
        while !end.load(Ordering::Relaxed) {
            let forwarder = &mut self.forwarder;
            forwarder.from.exchange(&mut forwarder.frames);
            forwarder.to.exchange(&mut forwarder.frames);
            let now = monotonic_ns();
            let arrived = self.take_in(now) + self.give_back()?;
            self.serve(now)?;
            if now >= self.told + TELL {
                self.tell(now)?;
            }
            if arrived == 0 && self.queue.is_empty() {
                self.tell(now)?;
                self.sleep()?;
            }
        }
        let now = monotonic_ns();
        self.asked = 0;
        self.tell(now)
    }

    /// What arrived for the queue.
    fn take_in(&mut self, now: u64) -> usize {
        let Forwarder { from, frames, .. } = &mut self.forwarder;
        for arrived in 0..BATCH {
            let Some(mut frame) = from.receive() else {
                return arrived;
            };
            let seen = self.reader.read(frames.bytes(&frame));
            self.checksums[0].count(seen.checksum);
            let bytes = frame.len().max(SHORTEST);
            let queued = self.queue.length();
            let verdict = self.discipline.admit(now, seen.burst, bytes, queued);
            self.counts.count(verdict);
            if let Some(source) = seen.source {
                let sources = self.sources.lock();
                let mut sources = sources.unwrap_or_else(PoisonError::into_inner);
                sources.count(source, verdict);
                if self.border && verdict.is_in() {
                    let cleared = self.reader.unmark(frames.bytes_mut(&mut frame));
                    self.counts.cleared += u64::from(cleared);
                }
            }
            match verdict.is_in() {
                true => self.queue.put(now, frame, bytes),
                false => frames.put_back(frame),
            }
        }
        BATCH
    }

    /// What arrived on the way back.
    fn give_back(&mut self) -> anyhow::Result<usize> {
        let Forwarder {
            from, to, frames, ..
        } = &mut self.forwarder;
        let mut arrived = 0;
        while arrived < BATCH {
            let Some(frame) = to.receive() else { break };
            arrived += 1;
            let bytes = u64::from(frame.len().max(SHORTEST));
            let checksums = &mut self.checksums[1];
            if checksums.made < LEFT {
                checksums.count(self.reader.read(frames.bytes(&frame)).checksum);
            }
            match from.send(frame) {
                Ok(()) => {
                    self.counts.returned.0 += 1;
                    self.counts.returned.1 += bytes;
                }
                Err(frame) => {
                    self.counts.return_dropped += 1;
                    frames.put_back(frame);
                }
            }
        }
        if arrived > 0 || from.unsent() > 0 {
            from.flush()?;
        }
        Ok(arrived)
    }

    /// What is due. A frame that the interface has not taken yet holds up those behind it: they wait in
    /// the queue, where they count.
    fn serve(&mut self, now: u64) -> anyhow::Result<()> {
        let Forwarder { to, frames, .. } = &mut self.forwarder;
        let mut sent = 0;
        if to.unsent() == 0 {
            while sent < BATCH
                && let Some((frame, bytes)) = self.queue.take(now)
            {
                sent += 1;
                match to.send(frame) {
                    Ok(()) => {
                        self.counts.forwarded.0 += 1;
                        self.counts.forwarded.1 += u64::from(bytes);
                    }
                    // cannot be: the ring is empty and longer than a batch
                    Err(frame) => frames.put_back(frame),
                }
            }
        }
        if sent > 0 || to.unsent() > 0 {
            to.flush()?;
        }
        Ok(())
    }

    fn tell(&mut self, now: u64) -> anyhow::Result<()> {
        self.told = now;
        self.counts.queued = self.queue.length();
        self.counts.highest = self.queue.highest();
        self.counts.behind_ns = self.queue.behind();
        self.counts.reserved = self.discipline.reserved(now);
        if now >= self.asked + ASK {
            self.asked = now;
            let forwarder = &self.forwarder;
            self.counts.lost = [forwarder.from.lost()?, forwarder.to.lost()?];
            self.counts.other_queue = forwarder.in_other_queues()?;
            if !forwarder.is_attached() {
                bail!("an interface is gone, and the forwarding with it");
            }
        }
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
        let [from, to] = &mut self.checksums;
        from.check("--from");
        to.check("--to");
        Ok(())
    }

    /// Until something arrives.
    fn sleep(&self) -> anyhow::Result<()> {
        let Forwarder { from, to, .. } = &self.forwarder;
        let held_up = from.unsent() > 0 || to.unsent() > 0;
        let mut fds = [from, to].map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN));
        let time = if held_up { RETRY } else { SLEEP };
        match poll(&mut fds, PollTimeout::from(time)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("waiting for frames"),
        }
    }
}
