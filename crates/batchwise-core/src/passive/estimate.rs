//! What a closed epoch says: which gaps are pauses between batches, which lie inside bursts, which
//! are no latency at all (docs/research/passive.md has the evidence for each number).

use super::code::{OCTAVE, SHIFT, code_of};
use super::{Algorithm, Gaps, Kind, Mode, Params};

/// What a closed epoch says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Mean response latency, ns; `None`: not known.
    pub latency: Option<u64>,
    /// Mean pause between batches, ns: the paper's IBG.
    pub ibg: Option<u64>,
    /// Batches that the latency is the mean of.
    pub batches: u32,
    /// All gaps that were seen.
    pub gaps: u32,
    /// Of these, taken for timeouts, think or idle time.
    pub idle: u32,
    /// 0 to 1000: how far to trust the latency.
    pub confidence: u32,
    /// Nothing but retransmissions and waiting was seen: a server that does not answer, or one
    /// that nobody asked.
    pub stalled: bool,
}

/// A ratio of 4 between neighbouring modes separates bursts from pauses.
const VALLEY: u32 = 2 * OCTAVE;
/// A ratio of 16: above it lies what is not latency.
const THINK: u32 = 4 * OCTAVE;
/// A ratio of 2: gaps over `idle_ns` that stand apart.
const IDLE_VALLEY: u32 = OCTAVE;
/// Fewer than one in 8 gaps that stand apart are not the pauses.
const SUPPORT: u32 = 8;

#[derive(Clone, Copy, Default)]
struct Span {
    sum: u64,
    count: u32,
    marked: u32,
}

fn span(modes: &[Mode]) -> Span {
    modes.iter().fold(Span::default(), |s, m| Span {
        sum: s.sum + u64::from(m.sum),
        count: s.count + u32::from(m.count),
        marked: s.marked + u32::from(m.marked),
    })
}

/// Which part of the gaps is latency, and which of them are the pauses.
struct Shape {
    /// The first mode of pauses.
    pauses: usize,
    /// The first mode beyond latency.
    end: usize,
    /// 0 to 1000.
    trust: u32,
    /// No mark helps: all gaps count as marked.
    counted: bool,
}

/// How far mode `i` lies above its lower neighbour, in codes.
fn valley(modes: &[Mode], i: usize) -> u32 {
    match i.checked_sub(1) {
        Some(below) => u32::from(modes[i].lo) - u32::from(modes[below].hi),
        None => 0,
    }
}

/// From which mode on gaps are no latency for their length alone: timeouts, idle time.
fn idle_from(modes: &[Mode], p: &Params) -> usize {
    let idle = code_of(p.idle_ns);
    (0..modes.len())
        .find(|&i| modes[i].lo >= idle && (i == 0 || valley(modes, i) >= IDLE_VALLEY))
        .unwrap_or(modes.len())
}

fn shape(gaps: &Gaps, p: &Params) -> Shape {
    let modes = gaps.modes();
    let mut end = idle_from(modes, p);
    let all = span(&modes[..end]);
    let counted = !gaps.acks && all.marked == 0;
    let weigh = |s: Span| if counted { s.count } else { s.marked };
    let total = weigh(all);
    // Bursts lie below a valley. With acknowledgments, gaps inside a burst are those that
    // acknowledge nothing new: the highest valley counts below which most gaps are such, and few
    // marked ones lie (responses that came one soon after the other). Without, the lowest valley
    // with enough gaps above it does.
    let parts = |&i: &usize| {
        let below = span(&modes[..i]);
        let above = total - weigh(below);
        valley(modes, i) >= VALLEY
            && if gaps.acks {
                below.marked * 2 < below.count.min(above)
            } else {
                above * SUPPORT >= total
            }
    };
    let found = if gaps.acks {
        (1..end).rfind(parts)
    } else {
        (1..end).find(parts)
    };
    let pauses = found.unwrap_or(0);
    for i in (pauses + 1..end).rev() {
        if valley(modes, i) >= THINK && weigh(span(&modes[i..end])) * SUPPORT < total {
            end = i;
        }
    }
    let trust = match (counted, gaps.acks, found) {
        (true, _, _) => 400,
        (_, true, _) => 950,
        (_, _, Some(_)) => 850,
        _ => 700,
    };
    Shape {
        pauses,
        end,
        trust,
        counted,
    }
}

impl Gaps {
    /// What the epoch says.
    pub fn estimate(&self, p: &Params) -> Estimate {
        if self.kind == Kind::Flight {
            return of_flight(self);
        }
        let modes = self.modes();
        let shape = match p.algorithm {
            Algorithm::Auto | Algorithm::Modes => shape(self, p),
            Algorithm::Fixed(_) => Shape {
                pauses: modes.len().min(1),
                end: modes.len(),
                trust: 500,
                counted: false,
            },
        };
        let all = span(modes);
        let latency = span(&modes[..shape.end]);
        let pauses = span(&modes[shape.pauses.min(shape.end)..shape.end]);
        let [discarded, idle, resent] = [self.discarded, self.idle, self.resent].map(u32::from);
        let mut out = Estimate {
            gaps: all.count + discarded + idle + resent,
            idle: idle + all.count - latency.count,
            ..Estimate::default()
        };
        let n = if shape.counted {
            pauses.count
        } else {
            pauses.marked
        };
        if n == 0 {
            out.stalled = resent + out.idle > 0;
            return out;
        }
        out.batches = n;
        out.latency = Some((latency.sum << SHIFT) / u64::from(n));
        out.ibg = Some((pauses.sum << SHIFT) / u64::from(pauses.count));
        // n / (n + 3), and what had no room
        let sampled = shape.trust * n / (n + 3);
        let room = u64::from(all.count + discarded);
        out.confidence = (u64::from(sampled) * u64::from(all.count) / room) as u32;
        out
    }
}

/// What requests in flight say.
fn of_flight(gaps: &Gaps) -> Estimate {
    let f = &gaps.flight;
    // a pure ACK that was delayed makes a latency longer: only where nothing better is known
    let (sum, n, trust) = match (f.count > 0, f.sure) {
        (true, true) => (f.sum, f.count, 950),
        (true, false) => (f.sum, f.count, 800),
        (false, _) => (f.pure_ack_sum, u32::from(f.pure_acks), 500),
    };
    let mut out = Estimate {
        gaps: f.gaps + u32::from(gaps.resent),
        idle: u32::from(gaps.idle),
        batches: n,
        ..Estimate::default()
    };
    if n == 0 {
        out.stalled = u32::from(gaps.resent) + out.idle > 0;
        return out;
    }
    out.latency = Some((sum << SHIFT) / u64::from(n));
    out.confidence = (trust * u64::from(n) / (u64::from(n) + 3)) as u32;
    out
}
