//! What batching saves at this end, and so how much it would carry with either setting (§2 of the paper,
//! Figure 1). Requests cost the application's CPU α each, and the segments that they leave in β each.
//! A test sees both settings with the same requests in more and in fewer segments: two equations.

use super::{Arm, Slice};

/// What the CPU time of the applications' processes says; all of it is for a byte moved, so that it
/// does not matter how requests are cut into calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// ns of CPU time with Nagle's algorithm on and off, as seen in the test.
    cpu: [f64; 2],
    /// ns a byte (α) and ns a segment (β). `None`: both settings sent about as many segments, or those
    /// saved no time.
    costs: Option<(f64, f64)>,
    /// Segments, if all are full, or as few as Nagle's algorithm left.
    fewest: f64,
}

/// By how much fewer segments Nagle's algorithm must leave, for their price to be known.
const FEWER: f64 = 1.25;

impl Room {
    /// From the slices with Nagle's algorithm on and off. `None`: the processes took no time, or moved
    /// nothing.
    pub fn of<'a>(
        on: impl Iterator<Item = &'a Slice>,
        off: impl Iterator<Item = &'a Slice>,
    ) -> Option<Self> {
        let (on, off) = (Sums::of(on)?, Sums::of(off)?);
        let saved = (off.cpu - on.cpu) / (off.segments - on.segments);
        let alpha = off.cpu - saved * off.segments;
        let is_known = off.segments > FEWER * on.segments && saved > 0.0 && alpha > 0.0;
        Some(Self {
            cpu: [on.cpu, off.cpu],
            costs: is_known.then_some((alpha, saved)),
            fewest: on.full.min(on.segments),
        })
    }

    /// Bytes a second that one CPU of the applications carries. With TCP_NODELAY that is by the time that
    /// they took, so at least that. With Nagle's algorithm batches grow with the load, until segments are
    /// full.
    pub fn capacity(&self, arm: Arm) -> f64 {
        let cpu = match (arm, self.costs) {
            (Arm::On, Some((alpha, beta))) => alpha + beta * self.fewest,
            (Arm::On, None) => self.cpu[0],
            (Arm::Off, _) => self.cpu[1],
        };
        1e9 / cpu
    }

    /// α and β: ns of CPU time a byte, and a segment.
    pub fn costs(&self) -> Option<(f64, f64)> {
        self.costs
    }
}

/// For a byte moved.
struct Sums {
    cpu: f64,
    segments: f64,
    full: f64,
}

impl Sums {
    /// Sums, as the kernel brings the clock of a running process up to date every few ms only.
    fn of<'a>(slices: impl Iterator<Item = &'a Slice>) -> Option<Self> {
        let (mut bytes, mut cpu, mut segments, mut full) = (0.0, 0.0, 0.0, 0.0);
        for slice in slices {
            bytes += slice.bytes;
            cpu += slice.cpu;
            segments += slice.segments;
            full += slice.sent / slice.mss.max(1.0);
        }
        (bytes > 0.0 && cpu > 0.0).then(|| Self {
            cpu: cpu / bytes,
            segments: segments / bytes,
            full: full / bytes,
        })
    }
}
