//! When a run may be believed. Every rule that fails adds a sentence with its figures.

use crate::report::Figures;

/// What the rules look at besides the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity<'a> {
    /// What the first failure was.
    pub first_error: Option<&'a str>,
    /// Why connections were lost, if any were.
    pub lost: Option<&'a str>,
    /// Share of the run that the generator waited for its CPU, if known.
    pub cpu_wait_share: Option<f64>,
    /// The generator's own work (`busy_per_response`) or its sleep delays sends by design: lateness
    /// belongs to what is measured, and the share of the run that it may wait for its CPU counts instead.
    pub late_by_design: Option<f64>,
    /// Whether there is a schedule at all.
    pub open_loop: bool,
    /// The outcome of the arrival check, with its figures if it failed.
    pub arrivals_off: Option<String>,
}

impl Validity<'_> {
    /// The reasons not to believe the run; none if it is valid.
    ///
    /// * Something must have been measured.
    /// * No errors, and no connection lost.
    /// * At least 99 % of the offered load was served within the window. Ten requests are let
    ///   pass, since those in flight at the end of a short window are no sign of overload.
    /// * The mean latency is the mean lateness plus the mean from the send. A single sender is
    ///   late whenever a request falls due while the kernel still sends the one before; that
    ///   wait, computed from the measured cost of the calls, is the client's network stack at
    ///   work and belongs to the figure. What goes beyond it is the generator's own share: it
    ///   must stay below 10 % of the mean latency, or below 5 µs. A generator that stands still
    ///   also reads responses late, but a response then waits as long as a request that falls
    ///   due, so this rule covers that too. Likewise for the tail: p99 lateness below half of
    ///   p99 latency, or below 100 µs.
    /// * If the client works on each response, or sleeps, sends are late by design and that rule does not
    ///   apply: instead the generator must have waited for its CPU for less than 1 % of the run, or for
    ///   less than 10 % if it sleeps, since each wake-up is a wait.
    /// * At most 1 % of the requests met back-pressure: beyond that the socket's buffer, not the
    ///   schedule, decided when they left.
    /// * The arrivals have the distribution that was asked for.
    pub fn why_invalid(&self, figures: &Figures) -> Vec<String> {
        let Figures {
            requests,
            completed,
            errors,
            backpressure,
            ..
        } = *figures;
        let mut why = Vec::new();
        if requests == 0 {
            why.push("no request was due in the window: raise --rate or --duration".to_owned());
        }
        why.extend(failures(self.lost, errors, requests, self.first_error));
        if !self.open_loop {
            return why;
        }
        let share = |part: u64| part as f64 / requests as f64;
        let missing = requests.saturating_sub(completed);
        if missing > 10 && share(missing) > 0.01 {
            why.push(format!(
                "only {:.1} % of the offered load was served in the window",
                100.0 * share(completed)
            ));
        }
        why.extend(self.lateness(figures));
        if share(backpressure) > 0.01 {
            why.push(format!(
                "{:.1} % of the requests met back-pressure from the socket",
                100.0 * share(backpressure)
            ));
        }
        why.extend(self.arrivals_off.clone());
        why
    }

    /// What is said of requests that were sent late.
    pub fn lateness(&self, figures: &Figures) -> Option<String> {
        if let Some(most) = self.late_by_design {
            return waited_for_cpu(self.cpu_wait_share, most);
        }
        let (late, latency) = (&figures.lateness_ns, &figures.latency_ns);
        let expected = figures.expected_lateness_ns.unwrap_or_default();
        let own = late.mean.map(|mean| mean.saturating_sub(expected));
        if let Some((late, latency)) = exceeds(own, latency.mean, 0.1, 5_000) {
            return Some(format!(
                "requests were sent {late:.1} us later on average than sending costs, more than \
                 10 % of the mean latency of {latency:.1} us: the generator, its CPU or its \
                 socket could not keep up"
            ));
        }
        let (late, latency) = exceeds(late.p99, latency.p99, 0.5, 100_000)?;
        Some(format!(
            "the p99 lateness of sends, {late:.1} us, is more than half of the p99 latency \
             of {latency:.1} us: the tail is the generator's own (pin it with --cpu to a \
             CPU of its own)"
        ))
    }
}

/// What is said of connections that were lost and of requests that failed.
pub(crate) fn failures(
    lost: Option<&str>,
    errors: u64,
    requests: u64,
    first_error: Option<&str>,
) -> impl Iterator<Item = String> {
    let lost = lost.map(|lost| format!("connections were lost: {lost}"));
    let first = first_error.map_or(String::new(), |first| format!(" (first: {first})"));
    let failed = || format!("{errors} of {requests} requests failed or went unanswered{first}");
    lost.into_iter().chain((errors > 0).then(failed))
}

/// What is said of a generator that waited for its CPU for more than `most` of the run.
pub(crate) fn waited_for_cpu(share: Option<f64>, most: f64) -> Option<String> {
    let percent = share.filter(|&share| share > most)? * 100.0;
    Some(format!(
        "the generator waited for its CPU for {percent:.1} % of the run: pin it with --cpu to a \
         CPU of its own"
    ))
}

/// Both in µs, if the client's own part of a latency is more than this share of it and than this
/// floor.
pub(crate) fn exceeds(
    own: Option<u64>,
    latency: Option<u64>,
    share: f64,
    floor_ns: u64,
) -> Option<(f64, f64)> {
    let (own, latency) = (own?, latency?);
    let exceeds = own > floor_ns && own as f64 > share * latency as f64;
    exceeds.then_some((own as f64 / 1e3, latency as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Figures, &mut Validity);

    /// Why a run is not believed that kept its schedule but for a change.
    fn why(change: Change) -> Vec<String> {
        let mut figures = Figures {
            requests: 100_000,
            completed: 100_000,
            ..Figures::default()
        };
        let (latency, lateness) = (&mut figures.latency_ns, &mut figures.lateness_ns);
        (latency.mean, latency.p99) = (Some(23_000), Some(60_000));
        (lateness.mean, lateness.p99) = (Some(1_000), Some(5_000));
        let mut validity = Validity {
            open_loop: true,
            ..Validity::default()
        };
        change(&mut figures, &mut validity);
        validity.why_invalid(&figures)
    }

    #[test]
    fn what_is_no_fault_is_believed() {
        let cases: [(&str, Change); 8] = [
            ("a run that kept its schedule", |_, _| ()),
            ("99 % of the load", |f, _| f.completed = 99_001),
            (
                "a few requests in flight at the end of a short run",
                |f, _| {
                    (f.requests, f.completed) = (100, 95);
                },
            ),
            ("lateness that the cost of sending explains", |f, _| {
                (f.lateness_ns.mean, f.expected_lateness_ns) = (Some(8_000), Some(4_000));
            }),
            ("a few µs", |f, _| f.lateness_ns.mean = Some(4_900)),
            ("a small share of a slow server's latency", |f, _| {
                (f.lateness_ns.mean, f.latency_ns.mean) = (Some(50_000), Some(900_000));
            }),
            ("1 % back-pressure", |f, _| f.backpressure = 1_000),
            (
                "a client that works on responses on a CPU of its own",
                |f, v| {
                    (f.latency_ns.p99, f.lateness_ns.p99) = (Some(300_000), Some(200_000));
                    (v.late_by_design, v.cpu_wait_share) = (Some(0.01), Some(0.009));
                },
            ),
        ];
        for (name, change) in cases {
            assert_eq!(why(change), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn each_rule_speaks_for_itself() {
        let cases: [(Change, &str); 9] = [
            (|f, _| (f.requests, f.completed) = (0, 0), "--rate"),
            (|f, _| f.completed = 98_990, "99.0 %"),
            (
                |f, v| (f.errors, v.first_error) = (1, Some("OOM")),
                "1 of 100000 requests failed or went unanswered (first: OOM)",
            ),
            (|_, v| v.lost = Some("reset"), "reset"),
            (|f, _| f.lateness_ns.mean = Some(5_100), "late"),
            (
                |f, _| (f.latency_ns.p99, f.lateness_ns.p99) = (Some(300_000), Some(200_000)),
                "tail",
            ),
            (
                |_, v| (v.late_by_design, v.cpu_wait_share) = (Some(0.01), Some(0.02)),
                "2.0 % of the run",
            ),
            (|f, _| f.backpressure = 1_001, "1.0 %"),
            (
                |_, v| v.arrivals_off = Some("not Poisson".into()),
                "not Poisson",
            ),
        ];
        for (change, part) in cases {
            let why = why(change);
            assert_eq!(why.len(), 1, "{part}: {why:?}");
            assert!(why[0].contains(part), "{why:?}");
        }
    }

    #[test]
    fn a_closed_loop_is_judged_by_its_errors_alone() {
        let judged = why(|f, v| {
            (v.open_loop, f.completed, f.backpressure) = (false, 0, 9_999);
        });
        assert!(judged.is_empty(), "{judged:?}");
    }
}
