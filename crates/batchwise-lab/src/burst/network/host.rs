//! Both ends of a flow, and the sender's own link.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::Outcome;
use crate::burst::packet::{Ack, Burst, Kind, Packet};
use crate::burst::tcp::{Config, Receiver, Recovery, Sender};

/// Bytes of headers: IPv4, TCP with timestamps.
const HEADERS: u32 = 52;
/// Bytes of a full-sized packet.
pub const FULL: u32 = 1500;
/// Segments of a GSO buffer: 64 KiB.
const GSO: u32 = 44;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    At(u64),
    /// When all flows of this group are complete.
    After(u32),
}

/// What a sender's packets say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marks {
    Never,
    /// What is sent in one go, as long as it is.
    Bursts,
    /// Every new segment, with this chance, claims to be the first of so many.
    Lies {
        share: f64,
        claimed: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct FlowSpec {
    pub source: u32,
    /// The hop that it enters at.
    pub enters: usize,
    pub start: Start,
    /// Flows that wait for each other, see [`Start::After`].
    pub group: u32,
    /// Segments; `None`: without an end.
    pub total: Option<u32>,
    /// A segment is so many full-sized packets long (jumbo frames).
    pub size: u32,
    /// New data waits until so many segments may be sent together.
    pub unit: u32,
    pub recovery: Recovery,
    pub marks: Marks,
}

/// A link that sends one packet after the other.
#[derive(Default)]
pub struct Link {
    free_at: u64,
}

impl Link {
    /// When the packet's last bit has left.
    pub fn pass(&mut self, now: u64, bytes: u32, rate: u64) -> u64 {
        self.free_at = self.free_at.max(now) + u64::from(bytes) * 8_000_000_000 / rate;
        self.free_at
    }
}

pub struct Host {
    pub sender: Sender,
    pub receiver: Receiver,
    pub link: Link,
    pub began: u64,
    pub wakes_at: Option<u64>,
    pub late_at: u64,
    pub outcome: Outcome,
    bursts: u32,
    rng: StdRng,
}

impl Host {
    pub fn new(spec: &FlowSpec, seed: u64) -> Self {
        Self {
            sender: Sender::new(Config {
                total: spec.total,
                recovery: spec.recovery,
                unit: spec.unit,
            }),
            receiver: Receiver::default(),
            link: Link::default(),
            began: 0,
            wakes_at: None,
            late_at: 0,
            outcome: Outcome::default(),
            bursts: 0,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// The acknowledgment that has waited, unless another was sent since.
    pub fn late(&mut self, now: u64) -> Option<Ack> {
        (self.late_at == now)
            .then(|| self.receiver.late())
            .flatten()
    }

    /// The packets that leave now.
    pub fn send(&mut self, now: u64, spec: &FlowSpec, flow: u32) -> Vec<Packet> {
        let sent = self.sender.send(now);
        let packet = |kind, burst| Packet {
            flow,
            source: spec.source,
            bytes: match kind {
                Kind::Syn => HEADERS + 8,
                _ => spec.size * (FULL - HEADERS) + HEADERS,
            },
            kind,
            burst,
        };
        let syn = sent.syn.then(|| packet(Kind::Syn, None));
        let again = sent.again.iter().map(|&seq| packet(Kind::Data(seq), None));
        let mut packets: Vec<_> = syn.into_iter().chain(again).collect();
        let marks = self.marks(spec.marks, sent.new);
        let new = (sent.first..).zip(marks);
        packets.extend(new.map(|(seq, burst)| packet(Kind::Data(seq), burst)));
        packets
    }

    /// The marks of so many new segments.
    fn marks(&mut self, marks: Marks, new: u32) -> Vec<Option<Burst>> {
        let mut all = Vec::new();
        match marks {
            Marks::Never => all.resize(new as usize, None),
            Marks::Bursts => {
                for start in (0..new).step_by(GSO as usize) {
                    self.bursts += 1;
                    let length = GSO.min(new - start);
                    all.extend(Burst::marks(self.bursts, length, length));
                }
            }
            Marks::Lies { share, claimed } => {
                for _ in 0..new {
                    self.bursts += 1;
                    let lies = self.rng.random_bool(share);
                    let claimed = if lies { claimed } else { 0 };
                    all.extend(Burst::marks(self.bursts, 1, claimed));
                }
            }
        }
        all
    }
}
