//! Servers that fail fast: an error page is quick, and must not attract traffic. A latency far below
//! the server's own past and far below the others' is not believed until a health check that looks at
//! the application's answer has passed, or until it has lasted.

use alloc::vec::Vec;

use super::{Backend, Params};

pub(super) fn judge(serving: &mut [&mut Backend], params: &Params) {
    let latencies: Vec<Option<f64>> = serving
        .iter()
        .map(|b| b.latest.or_else(|| b.latency(params)))
        .collect();
    for (at, backend) in serving.iter_mut().enumerate() {
        let Some(latency) = latencies[at] else {
            continue;
        };
        let others = latencies.iter().enumerate();
        let mut others: Vec<f64> = others
            .filter(|(i, _)| *i != at)
            .filter_map(|(_, l)| *l)
            .collect();
        others.sort_by(f64::total_cmp);
        let below = |usual: f64| latency < params.suspicious * usual;
        let far_below = match (backend.past, others.as_slice()) {
            (_, []) => false,
            (Some(past), all) => below(past) && below(all[(all.len() - 1) / 2]),
            // Without a past of its own it must be alone: of two servers, the other may be sick.
            (None, [_]) => false,
            (None, all) => below(all[0]),
        };
        backend.suspect = match backend.suspect {
            _ if !far_below => None,
            _ if backend.vouched => None,
            Some(since) if since >= params.trust_intervals => None,
            since => Some(since.unwrap_or(0) + 1),
        };
        if backend.suspect.is_none() {
            if far_below {
                backend.past = Some(latency);
            }
            backend.believe(latency);
        }
    }
}
