//! What is wrong with a service, by name: rules, in the order in which they are asked, over what was seen of it in an
//! interval. `docs/reference/advice.md` says what to do about each.

use super::report::{Advice, Latency, Side, Stages};

/// What was seen of one side of a service in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// Mean latency of a request.
    pub latency: Latency,
    /// Where it is spent.
    pub stages: Stages,
    /// How many requests there were.
    pub requests: f64,
    /// Bytes that have waited here to be read through all of the interval, on all connections.
    pub untouched: u64,
    /// Connections that the listener has dropped.
    pub dropped: u64,
    /// Segments with data that were sent, and those of them that were sent again.
    pub sent: [u64; 2],
    /// For how much of the interval the other end's window was full, on the connection where that was longest, 0 to 1.
    pub window_full: f64,
}

/// What is wrong, and how much it is of what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Its name.
    pub advice: Advice,
    /// How much it is.
    pub extent: Extent,
}

/// How much something is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// So much of a latency, both ns.
    Of(u64, u64),
    /// A share of all.
    Share(f64),
    /// A number of times.
    Times(u64),
    /// Bytes.
    Bytes(u64),
}

/// What takes less, ns, is no trouble, whatever its share: as with the holds that `tune` looks for.
const LEAST: u64 = 1_000_000;
/// What takes at least one in so many parts of a latency is why it is long.
const PART: u64 = 2;
/// Of segments that are sent again. Paths without trouble lose a tenth of that.
const LOSS: f64 = 0.01;
/// What is lost at the end of a response is sent again after this time or later, ns: TCP_RTO_MIN.
const RESENT_AFTER: f64 = 2e8;
/// Of the interval, that a window is full.
const FULL: f64 = 0.5;

/// What is wrong with this side of a service, the worst that there is; `None`: nothing.
pub fn find(side: Side, e: &Evidence) -> Option<Finding> {
    let of = |advice, extent| Some(Finding { advice, extent });
    if e.dropped > 0 {
        return of(Advice::ListenOverflows, Extent::Times(e.dropped));
    }
    let [sent, again] = e.sent;
    let loss = again as f64 / sent.max(1) as f64;
    if again > 1 && loss >= LOSS {
        return of(Advice::Retransmits, Extent::Share(loss.min(1.0)));
    }
    if e.window_full >= FULL {
        return of(Advice::WindowFull, Extent::Share(e.window_full.min(1.0)));
    }
    if e.untouched > 0 {
        let [here, _] = late_readers(side);
        return of(here, Extent::Bytes(e.untouched));
    }
    let (longest, advice) = causes(side, e).max_by_key(|(ns, _)| *ns)?;
    let whole = e.latency.total.unwrap_or(0).max(longest);
    if longest < LEAST || longest.saturating_mul(PART) < whole {
        return None;
    }
    // a response is over when it has left for the last time
    let resending = again as f64 * RESENT_AFTER / e.requests.max(1.0);
    if advice == Advice::ServerWorks && 2.0 * resending > longest as f64 {
        return of(Advice::Retransmits, Extent::Share(loss.min(1.0)));
    }
    of(advice, Extent::Of(longest, whole))
}

/// When this end reads late, and when the other one does.
fn late_readers(side: Side) -> [Advice; 2] {
    match side {
        Side::Server => [Advice::ServerReadsLate, Advice::ClientReadsLate],
        Side::Client => [Advice::ClientReadsLate, Advice::ServerReadsLate],
    }
}

/// How long each of them makes a request, ns.
fn causes(side: Side, e: &Evidence) -> impl Iterator<Item = (u64, Advice)> {
    let [here, there] = late_readers(side);
    // a server's response is not over before its last part has left
    let waits = match side {
        Side::Server => e.stages.unsent.unwrap_or(0),
        Side::Client => 0,
    };
    let works = e.latency.turnaround.map(|ns| ns.saturating_sub(waits));
    [
        (e.stages.held_by_nagle, Advice::NagleHolds),
        (e.stages.held_by_delack, Advice::DelackHolds),
        (e.stages.unread_local, here),
        (e.stages.unread_remote, there),
        (works, Advice::ServerWorks),
    ]
    .into_iter()
    .filter_map(|(ns, advice)| Some((ns?, advice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What a total of 43 ms, and otherwise this, is taken for.
    fn found(side: Side, change: impl FnOnce(&mut Evidence)) -> Option<Finding> {
        let mut e = Evidence::default();
        e.latency.total = Some(43 * MS);
        change(&mut e);
        find(side, &e)
    }

    fn advice(side: Side, change: impl FnOnce(&mut Evidence)) -> Option<Advice> {
        found(side, change).map(|found| found.advice)
    }

    #[test]
    fn what_takes_most_of_the_latency_is_named_with_its_part() {
        let held = found(Side::Server, |e| {
            e.stages.held_by_nagle = Some(40 * MS);
            e.stages.unsent = Some(40 * MS);
            e.latency.turnaround = Some(42 * MS);
        });
        assert_eq!(
            held,
            Some(Finding {
                advice: Advice::NagleHolds,
                extent: Extent::Of(40 * MS, 43 * MS)
            })
        );
        let acks = advice(Side::Client, |e| e.stages.held_by_delack = Some(40 * MS));
        assert_eq!(acks, Some(Advice::DelackHolds));
        let works = advice(Side::Server, |e| e.latency.turnaround = Some(30 * MS));
        assert_eq!(works, Some(Advice::ServerWorks));
    }

    #[test]
    fn who_reads_late_depends_on_the_side() {
        for (side, here, there) in [
            (
                Side::Server,
                Advice::ServerReadsLate,
                Advice::ClientReadsLate,
            ),
            (
                Side::Client,
                Advice::ClientReadsLate,
                Advice::ServerReadsLate,
            ),
        ] {
            assert_eq!(
                advice(side, |e| e.stages.unread_local = Some(30 * MS)),
                Some(here)
            );
            assert_eq!(
                advice(side, |e| e.stages.unread_remote = Some(30 * MS)),
                Some(there)
            );
        }
    }

    #[test]
    fn little_or_a_small_part_is_no_trouble() {
        assert_eq!(advice(Side::Server, |_| ()), None);
        let small = |e: &mut Evidence| e.stages.unread_local = Some(20 * MS);
        assert_eq!(advice(Side::Server, small), None);
        let fast = |e: &mut Evidence| {
            e.latency.total = Some(MS);
            e.latency.turnaround = Some(MS - 1);
        };
        assert_eq!(advice(Side::Server, fast), None);
    }

    #[test]
    fn what_is_not_read_at_all_is_named_whatever_the_latency_is_of() {
        let stuck = found(Side::Client, |e| {
            e.latency.total = None;
            e.untouched = 50_000;
        });
        let extent = Extent::Bytes(50_000);
        let advice = Advice::ClientReadsLate;
        assert_eq!(stuck, Some(Finding { advice, extent }));
    }

    #[test]
    fn what_the_network_loses_and_the_other_end_refuses_is_named_first() {
        let works = |e: &mut Evidence| e.latency.turnaround = Some(30 * MS);
        let lost = advice(Side::Server, |e| {
            works(e);
            e.sent = [1_000, 20];
        });
        assert_eq!(lost, Some(Advice::Retransmits));
        let chance = advice(Side::Server, |e| e.sent = [10, 1]);
        assert_eq!(chance, None);
        for (requests, expected) in [(5.0, Advice::Retransmits), (500.0, Advice::ServerWorks)] {
            let few = advice(Side::Server, |e| {
                works(e);
                (e.sent, e.requests) = ([1_000, 1], requests);
            });
            assert_eq!(few, Some(expected), "{requests}");
        }
        let full = advice(Side::Server, |e| {
            works(e);
            e.window_full = 0.9;
        });
        assert_eq!(full, Some(Advice::WindowFull));
        let dropped = advice(Side::Server, |e| {
            works(e);
            e.dropped = 3;
        });
        assert_eq!(dropped, Some(Advice::ListenOverflows));
    }
}
