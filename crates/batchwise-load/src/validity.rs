//! When a run may be believed. Every rule that fails adds a sentence with its figures.

use crate::report::{LatencySummary, LatenessSummary};

/// What the rules look at.
#[derive(Clone, Debug, Default)]
pub struct Validity<'a> {
    /// Requests of the window.
    pub requests: u64,
    /// Responses that arrived within the window.
    pub completed: u64,
    /// Requests of the window that failed in any way.
    pub errors: u64,
    /// What the first failure was.
    pub first_error: Option<&'a str>,
    /// Why connections were lost, if any were.
    pub lost: Option<&'a str>,
    /// Requests that met back-pressure.
    pub backpressure: u64,
    /// Latency from the intended times.
    pub latency: LatencySummary,
    /// Lateness of the sends.
    pub lateness: LatenessSummary,
    /// Mean lateness that the cost of sending alone explains, ns.
    pub expected_lateness: u64,
    /// Share of the run that the generator waited for its CPU, if known.
    pub cpu_wait_share: Option<f64>,
    /// Whether the generator's own work delays sends by design (`busy_per_response`), in which
    /// case lateness belongs to what is measured.
    pub client_works: bool,
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
    /// * If the client works on each response, sends are late by design and that rule does not
    ///   apply: instead the generator must have waited for its CPU for less than 1 % of the run.
    /// * At most 1 % of the requests met back-pressure: beyond that the socket's buffer, not the
    ///   schedule, decided when they left.
    /// * The arrivals have the distribution that was asked for.
    pub fn why_invalid(&self) -> Vec<String> {
        let mut why = Vec::new();
        if self.requests == 0 {
            why.push("no request was due in the window: raise --rate or --duration".to_owned());
        }
        if let Some(lost) = self.lost {
            why.push(format!("connections were lost: {lost}"));
        }
        if self.errors > 0 {
            let detail = self
                .first_error
                .map(|e| format!(" (first: {e})"))
                .unwrap_or_default();
            let (errors, requests) = (self.errors, self.requests);
            why.push(format!(
                "{errors} of {requests} requests failed or went unanswered{detail}"
            ));
        }
        if !self.open_loop {
            return why;
        }
        let missing = self.requests.saturating_sub(self.completed);
        if missing > 10 && missing as f64 > 0.01 * self.requests as f64 {
            let share = 100.0 * self.completed as f64 / self.requests as f64;
            why.push(format!(
                "only {share:.1} % of the offered load was served in the window"
            ));
        }
        self.judge_lateness(&mut why);
        if self.backpressure as f64 > 0.01 * self.requests as f64 {
            let share = 100.0 * self.backpressure as f64 / self.requests as f64;
            why.push(format!(
                "{share:.1} % of the requests met back-pressure from the socket"
            ));
        }
        why.extend(self.arrivals_off.clone());
        why
    }

    fn judge_lateness(&self, why: &mut Vec<String>) {
        if self.client_works {
            if let Some(share) = self.cpu_wait_share.filter(|&share| share > 0.01) {
                why.push(format!(
                    "the generator waited for its CPU for {:.1} % of the run: pin it with --cpu \
                     to a CPU of its own",
                    share * 100.0
                ));
            }
            return;
        }
        let exceeds = |late: Option<u64>, latency: Option<u64>, share: f64, floor_ns: u64| {
            let (late, latency) = (late?, latency?);
            let bad = late > floor_ns && late as f64 > share * latency as f64;
            bad.then_some((late as f64 / 1e3, latency as f64 / 1e3))
        };
        let own = self
            .lateness
            .mean
            .map(|mean| mean.saturating_sub(self.expected_lateness));
        if let Some((late, latency)) = exceeds(own, self.latency.mean, 0.1, 5_000) {
            why.push(format!(
                "requests were sent {late:.1} us later on average than sending costs, more than \
                 10 % of the mean latency of {latency:.1} us: the generator, its CPU or its \
                 socket could not keep up"
            ));
        } else if let Some((late, latency)) =
            exceeds(self.lateness.p99, self.latency.p99, 0.5, 100_000)
        {
            why.push(format!(
                "the p99 lateness of sends, {late:.1} us, is more than half of the p99 latency \
                 of {latency:.1} us: the tail is the generator's own (pin it with --cpu to a \
                 CPU of its own)"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Validity<'static> {
        let us = |n: u64| Some(n * 1000);
        Validity {
            requests: 100_000,
            completed: 100_000,
            open_loop: true,
            latency: LatencySummary {
                mean: us(23),
                p99: us(60),
                ..Default::default()
            },
            lateness: LatenessSummary {
                mean: us(1),
                p99: us(5),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn only_reason(case: Validity) -> String {
        let mut why = case.why_invalid();
        assert_eq!(why.len(), 1, "{why:?}");
        why.remove(0)
    }

    #[test]
    fn a_run_that_kept_its_schedule_is_valid() {
        assert_eq!(good().why_invalid(), Vec::<String>::new());
    }

    #[test]
    fn less_than_99_percent_of_the_load_is_invalid() {
        assert!(
            Validity {
                completed: 99_001,
                ..good()
            }
            .why_invalid()
            .is_empty()
        );
        assert!(
            only_reason(Validity {
                completed: 98_990,
                ..good()
            })
            .contains("99.0 %")
        );
    }

    #[test]
    fn a_few_requests_in_flight_at_the_end_of_a_short_run_are_no_overload() {
        assert!(
            Validity {
                requests: 100,
                completed: 95,
                ..good()
            }
            .why_invalid()
            .is_empty()
        );
    }

    #[test]
    fn a_single_error_is_invalid_and_is_quoted() {
        let case = Validity {
            errors: 1,
            first_error: Some("OOM"),
            ..good()
        };
        assert!(only_reason(case).contains("1 of 100000 requests failed or went unanswered (fir"));
    }

    #[test]
    fn lost_connections_are_invalid() {
        assert!(
            only_reason(Validity {
                lost: Some("reset"),
                ..good()
            })
            .contains("reset")
        );
    }

    #[test]
    fn lateness_counts_only_if_it_is_a_share_of_the_latency() {
        let late = |mean: u64| LatenessSummary {
            mean: Some(mean),
            ..Default::default()
        };
        let explained = Validity {
            lateness: late(8_000),
            expected_lateness: 4_000,
            ..good()
        };
        assert!(explained.why_invalid().is_empty());
        assert!(
            Validity {
                lateness: late(4_900),
                ..good()
            }
            .why_invalid()
            .is_empty()
        );
        assert!(
            only_reason(Validity {
                lateness: late(5_100),
                ..good()
            })
            .contains("late")
        );
        let slow = LatencySummary {
            mean: Some(900_000),
            ..Default::default()
        };
        let case = Validity {
            lateness: late(50_000),
            latency: slow,
            ..good()
        };
        assert!(case.why_invalid().is_empty());
    }

    #[test]
    fn a_tail_made_by_the_generator_is_invalid() {
        let mut case = good();
        case.latency.p99 = Some(300_000);
        case.lateness.p99 = Some(200_000);
        assert!(only_reason(case.clone()).contains("tail"));
        case.client_works = true;
        assert!(case.why_invalid().is_empty());
    }

    #[test]
    fn a_client_that_works_on_responses_must_have_its_cpu_to_itself() {
        let case = Validity {
            client_works: true,
            cpu_wait_share: Some(0.009),
            ..good()
        };
        assert!(case.why_invalid().is_empty());
        let case = Validity {
            cpu_wait_share: Some(0.02),
            ..case
        };
        assert!(only_reason(case).contains("2.0 % of the run"));
    }

    #[test]
    fn more_than_one_percent_back_pressure_is_invalid() {
        assert!(
            Validity {
                backpressure: 1_000,
                ..good()
            }
            .why_invalid()
            .is_empty()
        );
        assert!(
            only_reason(Validity {
                backpressure: 1_001,
                ..good()
            })
            .contains("1.0 %")
        );
    }

    #[test]
    fn wrong_arrivals_and_empty_windows_are_invalid() {
        let case = Validity {
            arrivals_off: Some("not Poisson".into()),
            ..good()
        };
        assert_eq!(only_reason(case), "not Poisson");
        let case = Validity {
            requests: 0,
            completed: 0,
            ..good()
        };
        assert!(only_reason(case).contains("--rate"));
    }

    #[test]
    fn a_closed_loop_is_judged_by_its_errors_alone() {
        let case = Validity {
            open_loop: false,
            completed: 0,
            backpressure: 9_999,
            ..good()
        };
        assert!(case.why_invalid().is_empty());
    }
}
