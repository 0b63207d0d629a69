//! Who gives weight, who takes it, and the way back. A backend deserves (its score) as much less than
//! its configured weight as it is slower than the best, now: not less and less for as long as it is
//! slow, as when weight is shifted each interval anew, which overshoots since what was shifted shows
//! only after connections that were there before have ended and queues have drained.

use super::Why;
use super::backend::{Backend, PATIENCE};
use super::params::{ALPHA_HIGH, ALPHA_LOW, CAP, DEADBAND, FLOOR, GIVE, REGRESS, SUSPICIOUS};

/// A slow server's freshness counts when it has so many connections.
const CONNECTIONS: u64 = 4;
/// Factor from which a server that has come back is one of all.
const RETURNED: f64 = 0.8;
/// Of a slow server's freshness, what a fast one must have: both are measured.
const AS_FRESH: f64 = 0.9;

pub(super) fn decide(serving: &mut [&mut Backend]) {
    let best = serving
        .iter()
        .filter(|b| !b.suspect)
        .filter_map(|b| Some(b.latency()? * (1.0 + b.uncertainty())))
        .fold(f64::INFINITY, f64::min);
    for backend in serving.iter_mut() {
        judge(backend, best);
    }
    let all_slow = serving
        .iter()
        .all(|b| b.why == Why::Steady && b.is_slower_than_usual());
    if all_slow {
        serving.iter_mut().for_each(|b| b.why = Why::AllSlow);
    }
    let bases: f64 = serving.iter().map(|b| b.base).sum();
    let scores: f64 = serving.iter().map(|b| b.base * b.score).sum();
    if !(bases > 0.0 && scores > 0.0) {
        return;
    }
    for backend in serving.iter_mut() {
        // What one that is doubted may not have is nobody's: kept by those who gave it, they would
        // not have given.
        let factor = backend.score * bases / scores;
        let factor = factor.clamp(FLOOR, backend.most());
        backend.factor = match backend.undecided {
            0 => factor,
            _ if gives(backend) => factor.min(backend.old),
            _ => backend.old,
        };
    }
    hold_back(serving);
    settle(serving);
}

/// The slow one of two that are undecided since long.
fn gives(backend: &Backend) -> bool {
    backend.undecided > PATIENCE && !backend.suspect
}

fn judge(backend: &mut Backend, best: f64) {
    let latency = backend.latency();
    let error = 1.0 + backend.uncertainty();
    let slow = |l: f64| l / error > ALPHA_HIGH * best;
    let waits = backend.is_stale() && backend.waits;
    let target = match latency {
        // as slow as can be believed
        Some(_) if gives(backend) => {
            let least = libm::pow(ALPHA_LOW * SUSPICIOUS, GIVE);
            least.clamp(FLOOR, 1.0).min(backend.score)
        }
        _ if backend.undecided > 0 => backend.score,
        _ if backend.suspect => 1.0,
        None if !backend.is_stale() || waits => backend.score,
        None => 1.0,
        Some(l) => libm::pow(ALPHA_LOW * best * error / l, GIVE).clamp(FLOOR, 1.0),
    };
    let before = backend.score;
    backend.score = match target < before {
        true => target,
        false => before + REGRESS * (target - before),
    };
    backend.why = match latency {
        _ if backend.suspect => Why::Suspicious,
        None if waits => Why::Unanswered,
        None if backend.is_stale() => Why::Stale,
        None => Why::FewSamples,
        Some(l) if slow(l) && target <= FLOOR => Why::Floor,
        Some(l) if slow(l) || gives(backend) => Why::Slow,
        Some(_) if backend.returning => Why::Returning,
        Some(_) if backend.score > before => Why::Regress,
        Some(_) => Why::Steady,
    };
}

/// Increments are bounded: fast servers that all take at once would be the next slow ones. What they
/// may not take stays where it was.
fn hold_back(serving: &mut [&mut Backend]) {
    let fresh = serving
        .iter()
        .filter(|b| matches!(b.why, Why::Slow | Why::Floor) && b.connections >= CONNECTIONS)
        .filter_map(|b| b.freshness)
        .fold(0.0, f64::max);
    let (mut given, mut refused) = (0.0, 0.0);
    for backend in serving.iter_mut() {
        let more = backend.factor - backend.old;
        if more <= 0.0 {
            given -= backend.base * more;
            continue;
        }
        let stale = backend.freshness.is_some_and(|f| f < AS_FRESH * fresh);
        let room = match stale {
            true => 0.0,
            false => backend.old * CAP,
        };
        if more > room {
            refused += backend.base * (more - room);
            backend.factor = backend.old + room;
        }
        if matches!(backend.why, Why::Steady | Why::Regress) {
            backend.why = match backend.why {
                _ if stale => Why::NotFresh,
                _ if more > room => Why::Capped,
                Why::Steady if more >= DEADBAND => Why::Takes,
                other => other,
            };
        }
    }
    if given > 0.0 {
        let kept = (refused / given).min(1.0);
        for backend in serving.iter_mut().filter(|b| b.factor < b.old) {
            let factor = backend.factor + kept * (backend.old - backend.factor);
            backend.factor = factor.min(backend.most());
        }
    }
}

/// Weights do not move for little.
fn settle(serving: &mut [&mut Backend]) {
    let moved = serving
        .iter()
        .any(|b| (b.factor - b.old).abs() >= DEADBAND * b.old);
    for backend in serving.iter_mut() {
        if !moved {
            backend.factor = backend.old.min(backend.most());
        }
        backend.returning &= backend.factor < RETURNED;
    }
}
