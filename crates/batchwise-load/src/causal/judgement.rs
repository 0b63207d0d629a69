//! When the truth of a closed loop may be believed. Every rule that fails adds a sentence.

/// What the rules look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgement<'a> {
    pub requests: u64,
    pub errors: u64,
    pub first_error: Option<&'a str>,
    pub lost: Option<&'a str>,
    /// Connections that could not be opened.
    pub connect_failures: u64,
    /// Median of the latency, ns.
    pub latency_p50: Option<u64>,
    /// Median of the client's own part of what a vantage sees, ns.
    pub think_p50: Option<u64>,
    /// 99th percentile of the latency, ns.
    pub latency_p99: Option<u64>,
    /// 99th percentile of the client's own part, ns.
    pub think_p99: Option<u64>,
    /// Share of the run that the generator's thread ran.
    pub cpu_share: Option<f64>,
    /// Share of the run that it waited for its CPU.
    pub cpu_wait_share: Option<f64>,
}

impl Judgement<'_> {
    /// The reasons not to believe the run; none if it is valid.
    ///
    /// * Something was measured, without errors and lost connections.
    /// * The client's own part stays small beside the latency: in the middle below 10 % of it (or
    ///   50 µs, what the paper saw of lightly loaded clients, §3.1), at p99 below half of it (or
    ///   500 µs).
    /// * The generator's thread had something left of its CPU, 10 %, and hardly waited for it,
    ///   5 %: responses would otherwise be read late, and the figure would be its own.
    pub fn why_invalid(&self) -> Vec<String> {
        let mut why = Vec::new();
        if self.requests == 0 {
            why.push("no request was sent: raise --duration or shorten --think".to_owned());
        }
        if let Some(lost) = self.lost {
            why.push(format!("connections were lost: {lost}"));
        }
        if self.connect_failures > 0 {
            let failures = self.connect_failures;
            why.push(format!("{failures} connections could not be opened"));
        }
        if self.errors > 0 {
            let (errors, requests) = (self.errors, self.requests);
            let first = self.first_error.unwrap_or("unknown");
            why.push(format!(
                "{errors} of {requests} requests failed or went unanswered (first: {first})"
            ));
        }
        let mut compare = |name: &str, think: Option<u64>, latency: Option<u64>, share, floor| {
            let (Some(think), Some(latency)) = (think, latency) else {
                return;
            };
            if think > floor && think as f64 > share * latency as f64 {
                why.push(format!(
                    "the client's own time between a response and the request that it caused \
                     ({name} {:.1} us) is more than {:.0} % of the latency ({name} {:.1} us): \
                     give it a CPU of its own with --cpu, or fewer connections",
                    think as f64 / 1e3,
                    share * 100.0,
                    latency as f64 / 1e3,
                ));
            }
        };
        compare("p50", self.think_p50, self.latency_p50, 0.1, 50_000);
        compare("p99", self.think_p99, self.latency_p99, 0.5, 500_000);
        if let Some(share) = self.cpu_share.filter(|&share| share > 0.9) {
            why.push(format!(
                "the generator's thread was busy for {:.0} % of the run: it is the bottleneck",
                share * 100.0
            ));
        }
        if let Some(share) = self.cpu_wait_share.filter(|&share| share > 0.05) {
            why.push(format!(
                "the generator waited for its CPU for {:.1} % of the run: pin it with --cpu to a \
                 CPU of its own",
                share * 100.0
            ));
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Judgement<'static> {
        Judgement {
            requests: 1000,
            latency_p50: Some(400_000),
            latency_p99: Some(2_000_000),
            think_p50: Some(4_000),
            think_p99: Some(30_000),
            cpu_share: Some(0.3),
            cpu_wait_share: Some(0.001),
            ..Default::default()
        }
    }

    #[test]
    fn a_quick_client_without_errors_is_believed() {
        assert_eq!(good().why_invalid(), Vec::<String>::new());
    }

    #[test]
    fn each_rule_speaks_for_itself() {
        let cases = [
            (
                Judgement {
                    requests: 0,
                    ..good()
                },
                "no request",
            ),
            (
                Judgement {
                    errors: 2,
                    first_error: Some("status 404"),
                    ..good()
                },
                "2 of 1000 requests failed or went unanswered (first: status 404)",
            ),
            (
                Judgement {
                    lost: Some("reset"),
                    ..good()
                },
                "reset",
            ),
            (
                Judgement {
                    connect_failures: 3,
                    ..good()
                },
                "3 connections could not be opened",
            ),
            (
                Judgement {
                    think_p50: Some(60_000),
                    ..good()
                },
                "p50 60.0 us",
            ),
            (
                Judgement {
                    think_p99: Some(1_100_000),
                    ..good()
                },
                "p99 1100.0 us",
            ),
            (
                Judgement {
                    cpu_share: Some(0.95),
                    ..good()
                },
                "bottleneck",
            ),
            (
                Judgement {
                    cpu_wait_share: Some(0.08),
                    ..good()
                },
                "8.0 %",
            ),
        ];
        for (case, part) in cases {
            let why = case.why_invalid();
            assert_eq!(why.len(), 1, "{part}: {why:?}");
            assert!(why[0].contains(part), "{why:?}");
        }
    }

    #[test]
    fn a_client_that_takes_microseconds_is_no_fault_even_beside_a_fast_server() {
        let fast = Judgement {
            latency_p50: Some(100_000),
            think_p50: Some(40_000),
            ..good()
        };
        assert!(fast.why_invalid().is_empty());
    }
}
