//! From queue windows to end-to-end latency (§3.2 of the paper), in any of the three units.
//!
//! ```text
//! L = unacked(here) − ackdelay(there) + unread(here) + unread(there)
//! ```
//!
//! Both ends' views are computed and the larger one is taken. The paper's L ends where the
//! application begins; `turnaround`, the server application's own time, is reported beside it.

use crate::sense::confidence::{self, Evidence, confidence};
use crate::sense::queue::Window;
use crate::sense::report::{Estimator, Latency, Side, Stages, Unit, View};
use crate::sense::sample::{Flow, Grid};
use crate::sense::spread;
use crate::sense::tails::Histogram;
use crate::sense::turns::{Requests, Why};
use crate::sense::wire::{Item, QUEUES, Queue};

/// What can be said of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How it was made.
    pub estimator: Estimator,
    /// Whose view is larger, if there are two.
    pub view: Option<View>,
    /// Mean latency.
    pub latency: Latency,
    /// Where it comes from.
    pub stages: Stages,
    /// 0 to 1.
    pub confidence: f64,
    /// Items a second.
    pub throughput: f64,
    /// Why there is no total, where something is known.
    pub why: Option<Why>,
}

impl Estimate {
    /// Takes in what the requests are. Where they are turns, the turn is what a client feels; a server does not
    /// see the part of the network's time that is before its requests' arrival and after its answers have left.
    ///
    /// `mean` is that of a turn, ns.
    pub fn take_turns(&mut self, flow: &Flow, requests: Requests, side: Side, mean: Option<f64>) {
        match requests {
            Requests::Pipelined => (),
            Requests::Unknown(why) => {
                (self.latency.total, self.latency.turnaround) = (None, None);
                self.confidence *= confidence::UNKNOWN;
                self.why = Some(why);
            }
            Requests::Turns => {
                if self.estimator.is_one_sided() {
                    self.estimator = Estimator::Turns;
                    self.confidence = confidence(&Evidence {
                        // what waits at the client a server does not see
                        estimator: match side {
                            Side::Client => Estimator::Turns,
                            Side::Server => Estimator::Local,
                        },
                        messages: flow.turns.over.into(),
                        overlaps: flow.turns.crossed.into(),
                        late_send: flow.late_send,
                    });
                }
                let network = self.latency.network;
                let turn = mean.map(|turn| ns(turn) + self.elsewhere(side));
                self.latency.total = match self.estimator {
                    // the larger view, as of the network: what hides in one is in the other
                    Estimator::TwoSided => self.latency.total.max(turn),
                    _ => turn,
                };
                let parts = self.latency.total.zip(network);
                self.latency.turnaround =
                    parts.map(|(total, network)| total.saturating_sub(network));
            }
        }
    }

    /// What a request takes where this end does not see it, as far as it is known, ns: a client sees all of it, a server
    /// no more of the network than what waits to be read there.
    pub fn elsewhere(&self, side: Side) -> u64 {
        let network = self.latency.network.zip(self.stages.unread_local);
        match side {
            Side::Client => 0,
            Side::Server => network.map_or(0, |(network, unread)| network.saturating_sub(unread)),
        }
    }

    /// Takes in that a share of the requests was counted, and that chance alone makes their mean differ by so much: a
    /// relative variance, from [`spread`]. The standard error of each latency.
    pub fn spread(&mut self, coverage: f64, variance: Option<f64>) -> Latency {
        self.confidence *= confidence::of_coverage(coverage);
        let Some(variance) = variance else {
            self.confidence *= confidence::of_spread(1.0);
            return Latency::default();
        };
        self.confidence *= confidence::of_spread(variance);
        let relative = libm::sqrt(variance + spread::SYSTEMATIC * spread::SYSTEMATIC);
        let error = |mean: Option<u64>| mean.map(|mean| ns(mean as f64 * relative));
        Latency {
            network: error(self.latency.network),
            turnaround: error(self.latency.turnaround),
            total: error(self.latency.total),
        }
    }
}

/// The queues of one end, seen in one unit.
struct End<'a> {
    windows: &'a Grid<Window>,
    unit: Unit,
    messages: u64,
}

impl End<'_> {
    fn window(&self, item: Item, queue: Queue) -> &Window {
        &self.windows[item as usize][queue as usize]
    }

    /// Mean delay of a queue, ns.
    fn delay(&self, queue: Queue) -> Option<f64> {
        match self.unit {
            Unit::Bytes => self.window(Item::Bytes, queue).delay(),
            Unit::Packets => self.window(Item::Segments, queue).delay(),
            Unit::Sends => blend(
                self.window(Item::Calls, queue),
                self.window(Item::Bytes, queue),
                self.messages,
            ),
        }
    }
}

/// Mean delay of `messages` messages, of which a receiver could tell `calls.total` apart.
///
/// Every PSH, and at a sender every call, ends one message for certain. When the sender's exchanged
/// count says that there were more, those were coalesced (Nagle, autocorking, a server that answers
/// many requests with one write) and share a segment with another. Where they hide is not known; a
/// segment holds the more of them the longer it is, so the excess is spread in proportion to bytes.
/// Without coalescing this is the per-call mean; when all is coalesced and messages are of one
/// size, the per-byte mean, and both are exact.
fn blend(calls: &Window, bytes: &Window, messages: u64) -> Option<f64> {
    let per_call = calls.delay()?;
    let excess = messages.saturating_sub(calls.total);
    if excess == 0 {
        return Some(per_call);
    }
    let per_byte = bytes.delay()?;
    let (told, excess) = (calls.total as f64, excess as f64);
    Some((told * per_call + excess * per_byte) / (told + excess))
}

/// The paper's L from the view of the end that holds `unacked`, and its parts.
struct NetworkView {
    unacked: f64,
    unread_holder: f64,
    unread_other: f64,
    ackdelay: f64,
}

impl NetworkView {
    fn new(holder: &End, other: &End) -> Option<Self> {
        let unacked = holder.delay(Queue::Unacked)?;
        Some(Self {
            unacked,
            unread_holder: holder.delay(Queue::Unread)?,
            unread_other: other.delay(Queue::Unread)?,
            // an acknowledgment cannot have waited longer than it was waited for
            ackdelay: other.delay(Queue::AckDelay)?.min(unacked),
        })
    }

    fn latency(&self) -> f64 {
        self.unacked - self.ackdelay + self.unread_holder + self.unread_other
    }
}

fn ns(v: f64) -> u64 {
    // `as` saturates; half a nanosecond of rounding is below every clock
    (v + 0.5) as u64
}

fn items_of(unit: Unit) -> &'static [Item] {
    match unit {
        Unit::Sends => &[Item::Calls, Item::Bytes],
        Unit::Bytes => &[Item::Bytes],
        Unit::Packets => &[Item::Segments],
    }
}

/// Whether the exchange brought, in this interval, every queue that a two-sided estimate needs,
/// and nothing that cannot be.
pub fn is_two_sided(flow: &Flow, unit: Unit, side: Side, interval: u64) -> bool {
    // the server's turnaround is its own
    let needed = match side {
        Side::Server => &QUEUES[..Queue::Turnaround as usize],
        Side::Client => &QUEUES,
    };
    items_of(unit).iter().all(|&item| {
        needed.iter().all(|&q| {
            flow.heard[item as usize][q as usize] > 0 && is_plausible(flow, item, q, interval)
        })
    })
}

/// A peer's claims are bounded by what this end saw pass: a queue cannot have run longer than twice
/// the interval (its reports come a little early or late), nor held or released more items than
/// there were bytes for them.
fn is_plausible(flow: &Flow, item: Item, queue: Queue, interval: u64) -> bool {
    let passed = match queue {
        Queue::Unacked => flow.here(Item::Bytes, Queue::Unread),
        _ => flow.here(Item::Bytes, Queue::Unacked),
    };
    can_be(flow.there(item, queue), passed, interval)
}

/// Whether the peer's application told of its own requests in this interval, and nothing that
/// cannot be: a request has a byte at least, on this connection.
pub fn is_hinted(flow: &Flow, interval: u64) -> bool {
    flow.hints_heard > 0 && can_be(&flow.hint, flow.here(Item::Bytes, Queue::Unread), interval)
}

fn can_be(claim: &Window, passed: &Window, interval: u64) -> bool {
    // what was still queued when the interval began may leave in it, too
    let slack = passed.integral / interval.max(1) + (1 << 20);
    let most = 2 * passed.total + slack;
    claim.time <= 2 * interval + REPORT_SLACK_NS
        && claim.total <= most
        && claim.integral / claim.time.max(interval).max(1) <= most
}

/// Reports of the peer lag by up to a round of the exchange and the delay of the path.
const REPORT_SLACK_NS: u64 = 1_000_000_000;

/// The two-sided estimate; `None` when a queue that it needs saw no item leave.
pub fn two_sided(flow: &Flow, unit: Unit, side: Side) -> Option<Estimate> {
    let calls =
        |windows: &Grid<Window>| windows[Item::Calls as usize][Queue::Unacked as usize].total;
    // One response for each request: whichever end made fewer calls put several into one.
    let messages = calls(&flow.local).max(calls(&flow.peer));
    let [here, there] = [&flow.local, &flow.peer].map(|windows| End {
        windows,
        unit,
        messages,
    });
    let local = NetworkView::new(&here, &there)?;
    let remote = NetworkView::new(&there, &here);
    let server = match side {
        Side::Server => &here,
        Side::Client => &there,
    };
    let turnaround = server.delay(Queue::Turnaround);
    let (view, larger) = match remote {
        Some(remote) if remote.latency() > local.latency() => (View::Remote, remote),
        _ => (View::Local, local),
    };
    let (unread_here, unread_there) = match view {
        View::Local => (larger.unread_holder, larger.unread_other),
        View::Remote => (larger.unread_other, larger.unread_holder),
    };
    let network = larger.latency();
    Some(Estimate {
        estimator: Estimator::TwoSided,
        view: Some(view),
        latency: Latency {
            network: Some(ns(network)),
            turnaround: turnaround.map(ns),
            total: turnaround.map(|t| ns(network + t)),
        },
        stages: Stages {
            unacked: Some(ns(larger.unacked)),
            unread_local: Some(ns(unread_here)),
            unread_remote: Some(ns(unread_there)),
            ackdelay_remote: Some(ns(larger.ackdelay)),
            ..Stages::default()
        },
        confidence: of_flow(Estimator::TwoSided, flow, messages),
        throughput: 0.0,
        why: None,
    })
}

fn of_flow(estimator: Estimator, flow: &Flow, messages: u64) -> f64 {
    confidence(&Evidence {
        estimator,
        messages,
        overlaps: flow.overlaps,
        late_send: flow.late_send,
    })
}

/// What a client alone knows once its requests were matched with their responses: the whole latency.
/// Its network's part is not known, but a bound of the path is.
pub fn matched(flow: &Flow, tails: &Histogram, stages: Stages) -> Option<Estimate> {
    let total = tails.mean()?;
    Some(Estimate {
        estimator: Estimator::Matched,
        view: None,
        latency: Latency {
            total: Some(ns(total)),
            ..Latency::default()
        },
        stages,
        confidence: confidence(&Evidence {
            estimator: Estimator::Matched,
            messages: tails.requests(),
            overlaps: flow.unsure,
            late_send: flow.late_send,
        }),
        throughput: 0.0,
        why: None,
    })
}

/// The best guess from this end alone.
///
/// A server sees its requests wait and its responses come acknowledged. What happens at the client
/// before a request leaves and after a response arrives is not seen, so `network` is what is left:
/// unread here, and the path. `unacked` bounds the path from above, but holds the client's ACK
/// delay; TCP's smallest round trip bounds it from below. A client sees its requests acknowledged,
/// usually by the response itself, and the response wait: together a lower bound of the total,
/// which cannot be split.
pub fn local(flow: &Flow, unit: Unit, side: Side) -> Estimate {
    let calls = |q| flow.here(Item::Calls, q).total;
    let messages = calls(Queue::Unacked).max(calls(Queue::Unread));
    let here = End {
        windows: &flow.local,
        unit,
        messages,
    };
    let (unacked, unread) = (here.delay(Queue::Unacked), here.delay(Queue::Unread));
    let stages = Stages {
        unacked: unacked.map(ns),
        unread_local: unread.map(ns),
        ..Stages::default()
    };
    let latency = match side {
        Side::Server => {
            let rtt = (flow.rtt_min > 0).then_some(flow.rtt_min as f64);
            let path = match (unacked, rtt) {
                (Some(u), Some(r)) => Some(u.min(r)),
                (a, b) => a.or(b),
            };
            let network = path.zip(unread).map(|(p, u)| p + u);
            let turnaround = here.delay(Queue::Turnaround);
            Latency {
                network: network.map(ns),
                turnaround: turnaround.map(ns),
                total: network.zip(turnaround).map(|(n, t)| ns(n + t)),
            }
        }
        Side::Client => Latency {
            total: unacked.zip(unread).map(|(a, u)| ns(a + u)),
            ..Latency::default()
        },
    };
    Estimate {
        estimator: Estimator::Local,
        view: None,
        latency,
        stages,
        confidence: of_flow(Estimator::Local, flow, messages),
        throughput: 0.0,
        why: None,
    }
}
