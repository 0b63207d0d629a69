//! Servers that fail fast: an error page is quick, and must not attract traffic. A latency far below
//! the server's own past and far below the others' is not believed until a health check that looks at
//! the application's answer has passed, or it is not so far below any more. That it lasts says
//! nothing: so do errors.

use alloc::vec::Vec;

use super::backend::Backend;
use super::params::SUSPICIOUS;

/// A server's latency now, and what that usually is, as far as they are known.
type Latencies = (Option<f64>, Option<f64>);

pub(super) fn judge(serving: &mut [&mut Backend]) {
    let latencies: Vec<Latencies> = serving
        .iter()
        .map(|b| (b.latest.or_else(|| b.latency()), b.past))
        .collect();
    let undecided = is_undecided(serving, &latencies);
    for (at, backend) in serving.iter_mut().enumerate() {
        let (Some(latency), past) = latencies[at] else {
            if backend.is_stale() {
                backend.undecided = 0;
            }
            continue;
        };
        let others = latencies.iter().enumerate().filter(|(i, _)| *i != at);
        let others: Vec<Latencies> = others.map(|(_, latencies)| *latencies).collect();
        let far_below = is_far_below(latency, past, &others);
        backend.suspect = far_below && !backend.confirmed;
        backend.undecided = match undecided {
            true => backend.undecided.saturating_add(1),
            false => 0,
        };
        if backend.suspect {
            backend.unlearn();
        } else if !undecided {
            if far_below {
                backend.past = Some(latency);
            }
            backend.believe(latency);
        }
    }
}

fn is_far_below(latency: f64, past: Option<f64>, others: &[Latencies]) -> bool {
    let below = |usual: f64| latency < SUSPICIOUS * usual;
    let mut now: Vec<f64> = others.iter().filter_map(|(now, _)| *now).collect();
    now.sort_by(f64::total_cmp);
    match (past, now.as_slice()) {
        (_, []) => false,
        (Some(past), now) => below(past) && below(now[(now.len() - 1) / 2]),
        // Without a past of its own it must be alone, and quicker than others are when they are well.
        (None, now) => {
            let pasts = others.iter().filter(|(now, _)| now.is_some());
            below(pasts.filter_map(|(_, past)| *past).fold(now[0], f64::min))
        }
    }
}

/// Of two servers of which nothing is known from before (after an agent's restart, or at the start)
/// one may fail fast or the other be slow, and latencies alone do not tell. So the fast one is
/// doubted, and both keep the weights that they have, which after a restart are the former agent's,
/// who knew: until a check vouches for the fast one, or they once were near enough to each other
/// to have pasts. For a slow server that is slow from the beginning that may never be; so after
/// [`PATIENCE`](super::backend::PATIENCE) it gives as if it were slower by what is just believable, and no more:
/// that relieves it, often into the range where all is judged as usual, and if the fast one does fail,
/// it has not got much more than half of the connections.
fn is_undecided(serving: &[&mut Backend], latencies: &[Latencies]) -> bool {
    let pairs = serving.iter().zip(latencies);
    let mut both = pairs.filter_map(|(b, (now, past))| Some((b.confirmed, (*now)?, *past)));
    let (Some((a_confirmed, a, None)), Some((b_confirmed, b, None)), None) =
        (both.next(), both.next(), both.next())
    else {
        return false;
    };
    let (fast, slow, confirmed) = match a < b {
        true => (a, b, a_confirmed),
        false => (b, a, b_confirmed),
    };
    fast < SUSPICIOUS * slow && !confirmed
}
