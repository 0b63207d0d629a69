//! Round-trip times and the timeouts that follow from them (RFC 6298, with Linux' minimum of 200 ms).

/// ns.
const MIN_RTO: f64 = 200e6;
/// Before there is a measurement.
const FIRST_RTO: u64 = 1_000_000_000;
/// Longer are no use in a run of seconds.
const MAX_BACKOFF: u32 = 6;

#[derive(Default)]
pub struct Rtt {
    smoothed: Option<f64>,
    variation: f64,
    least: Option<u64>,
    backoff: u32,
}

impl Rtt {
    pub fn sample(&mut self, rtt: u64) {
        let least = self.least.unwrap_or(rtt);
        self.least = Some(least.min(rtt));
        let rtt = rtt as f64;
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(rtt), rtt / 2.0),
            Some(smoothed) => {
                self.variation += ((smoothed - rtt).abs() - self.variation) / 4.0;
                self.smoothed = Some(smoothed + (rtt - smoothed) / 8.0);
            }
        }
    }

    /// Something new was acknowledged.
    pub fn progress(&mut self) {
        self.backoff = 0;
    }

    pub fn timed_out(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    pub fn timeout(&self) -> u64 {
        let first = |s: f64| (s + (4.0 * self.variation).max(MIN_RTO)) as u64;
        self.smoothed.map_or(FIRST_RTO, first) << self.backoff
    }

    /// Until a tail is probed, ns: RFC 8985, section 7.2, with the additions of Linux' tcp_schedule_loss_probe().
    pub fn probe(&self, outstanding: usize) -> u64 {
        let more = if outstanding == 1 {
            200_000_000
        } else {
            2_000_000
        };
        let twice = self.smoothed.map_or(FIRST_RTO, |s| (2.0 * s) as u64);
        (twice + more).min(self.timeout())
    }

    pub fn least(&self) -> u64 {
        self.least.unwrap_or_default()
    }
}
