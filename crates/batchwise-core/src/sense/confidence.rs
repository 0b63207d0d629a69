//! How far an estimate of latency is to be trusted, 0 (guess) to 1. From 0.7 on it claims to be within 15 % of what users
//! feel; the numbers here are what estimates have earned (docs/research/estimator.md#confidence).

use super::report::Estimator;

/// What an estimate rests on.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// How it was made.
    pub estimator: Estimator,
    /// Messages that it is the mean of.
    pub messages: u64,
    /// Requests that were read while an earlier one had no response yet; of those that were matched,
    /// where which response is theirs is a guess.
    pub overlaps: u64,
    /// Send times were taken after the call, not at its beginning.
    pub late_send: bool,
}

/// Both ends' queues.
const TWO_SIDED: f64 = 0.95;
/// This end's queues, and a guess of the rest: a server does not see what waits at its client.
const LOCAL: f64 = 0.25;
/// Sends and the reads of their responses, in order.
const MATCHED: f64 = 0.8;
/// Where each turn is a request.
const TURNS: f64 = 0.8;
/// What is left of it where requests cannot be told.
pub const UNKNOWN: f64 = 0.3;
/// The application's own word, as far as it counts right.
const HINT: f64 = 0.99;
/// Send times taken after the call hide the time that the call took.
const LATE_SEND: f64 = 0.7;

/// How far an estimate that rests on `e` is to be trusted.
pub fn confidence(e: &Evidence) -> f64 {
    let estimator = match e.estimator {
        Estimator::TwoSided => TWO_SIDED,
        Estimator::Local => LOCAL,
        Estimator::Matched => MATCHED,
        Estimator::Turns => TURNS,
        Estimator::Hint => HINT,
    };
    let late_send = if e.late_send { LATE_SEND } else { 1.0 };
    estimator * of_overlaps(e.overlaps, e.messages) * of_number(e.messages) * late_send
}

/// `turnaround` takes the next send for the response to all that was read. Requests that were read
/// while earlier ones waited (a server that works on several at once) make it a lower bound.
fn of_overlaps(overlaps: u64, messages: u64) -> f64 {
    let share = overlaps as f64 / messages.max(1) as f64;
    1.0 - 0.5 * share.min(1.0)
}

/// Few items, little trust: a tenth at one request, nine tenths at a hundred.
fn of_number(messages: u64) -> f64 {
    let n = messages as f64;
    n / (n + 9.0)
}

/// With a share of the requests counted: a window slows what it counts, and few of them tell little.
pub fn of_coverage(coverage: f64) -> f64 {
    0.7 + 0.3 * coverage.clamp(0.0, 1.0)
}

/// A mean that chance makes uncertain by a quarter of itself is worth half; the variance is relative.
pub fn of_spread(variance: f64) -> f64 {
    1.0 / (1.0 + 16.0 * variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_messages_overlaps_and_late_send_times_each_cost_trust() {
        let good = Evidence {
            estimator: Estimator::TwoSided,
            messages: 991,
            overlaps: 0,
            late_send: false,
        };
        let few = Evidence {
            messages: 9,
            ..good
        };
        let overlapping = Evidence {
            overlaps: 991,
            ..good
        };
        let late = Evidence {
            late_send: true,
            ..good
        };
        let of_good = confidence(&good);
        assert!((0.9..0.95).contains(&of_good));
        assert_eq!(confidence(&few), 0.95 * 0.5);
        assert_eq!(confidence(&overlapping), of_good * 0.5);
        assert_eq!(confidence(&late), of_good * 0.7);
    }
}
