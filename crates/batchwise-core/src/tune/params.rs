//! The numbers that an operator might ask for: when a test is made, how long it takes, what it costs and
//! what it says. Others stand beside what they are for: from how much under way on anything is tested
//! (`OVERLAP`), and when a slice is cut short (`Usual`).

/// What tuning goes by. Times are ns, shares and ratios have no unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// What tests may take of the time, as a share, in any minute.
    pub budget: f64,
    /// A slice is at least so long, …
    pub shortest: u64,
    /// … has so many segments in it that chance alone changes their number by less than a tenth, …
    pub segments: f64,
    /// … or longer, if switching and reading would take more than a tenth of it, but never longer than
    /// this.
    pub longest: u64,
    /// A pair counts for whom it favours by so much (as a logarithm, so about a share).
    pub margin: f64,
    /// Throughput weighs so many times as much as latency, where it differs by more than chance: senders
    /// wait for answers or for room then, and latency is only seen in part. Elsewhere it weighs as much.
    pub weight: f64,
    /// The setting in force changes when the other one has won so many pairs more than twice what it has
    /// lost, and stays when that is two thirds as far below: Wald's sequential test of who wins 80 % of
    /// the pairs against 50 %. To stay where one is takes less proof, and the test that ends sooner costs
    /// less.
    pub lead: u32,
    /// Fewer pairs decide nothing: throughput needs so many to show more than chance, …
    pub fewest_pairs: u32,
    /// … and after so many the test ends undecided.
    pub most_pairs: u32,
    /// The first rest between tests. As long as the answer stays the same, each rest is twice as long
    /// as the one before, …
    pub first_rest: u64,
    /// … up to this. So long an answer is good for its load.
    pub longest_rest: u64,
    /// A load that differs by this factor from all that were tested lately asks for another test at once.
    pub shift: f64,
    /// Messages that Nagle's algorithm holds back for so long in the mean, ns, ask for a test at once, however few.
    pub held: f64,
    /// Three pairs decide that favour one setting by this factor, be it in latency or in throughput.
    pub plain: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            budget: 0.02,
            shortest: 4_000_000,
            segments: 200.0,
            longest: 100_000_000,
            margin: 0.05,
            weight: 10.0,
            lead: 9,
            fewest_pairs: 6,
            most_pairs: 30,
            first_rest: 5_000_000_000,
            longest_rest: 120_000_000_000,
            shift: 1.25,
            held: 1e6,
            plain: 8.0,
        }
    }
}
