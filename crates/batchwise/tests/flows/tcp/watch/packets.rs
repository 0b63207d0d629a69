//! The exchange on the wire: its options have the documented form, are rare, and never make a
//! segment larger than the path takes.

use std::collections::{BTreeMap, HashMap};

use batchwise_core::sense::report::{Estimator, Line, Side};
use batchwise_core::sense::wire::{EXID, HELLO_LEN, KIND, LEN, Tuple};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::Stage;
use batchwise_testbed::stage::capture::{Capture, Segment};
use batchwise_testbed::stage::generator::Load;
use batchwise_testbed::stage::watch::{Watch, now_ns};

use crate::tcp::watch::nft::{Filter, LOSS};

const HELLO: [u8; HELLO_LEN] = [KIND, HELLO_LEN as u8, (EXID >> 8) as u8, EXID as u8];
const MTU: u16 = 1500;
/// The default of --exchange-period.
const PERIOD_NS: u64 = 1_000_000;
/// The first half byte of a tuple: what an agent says of itself (docs/research/exchange.md).
const STATE: u8 = 3 << 2;
/// Wire times have 28 bits.
const TIME_MASK: u32 = (1 << 28) - 1;

fn both(stage: &Stage) -> (Watch, Watch) {
    let args = ["--exchange", "--count", "sends,packets"];
    (
        Watch::host(&stage.hosts.server, PORT, &args),
        Watch::host(&stage.hosts.client, PORT, &args),
    )
}

fn assert_handshakes_offer(segments: &[Segment]) {
    for from_server in [false, true] {
        let mut hellos = segments
            .iter()
            .filter(|s| s.syn && s.from_server == from_server);
        let first = hellos.next().expect("a handshake");
        assert_eq!(first.ours(), [&HELLO[..]], "from the server: {from_server}");
        assert!(first.has_timestamps());
    }
}

fn assert_segments_fit(segments: &[Segment]) {
    for s in segments {
        assert!(s.ip_length <= MTU, "an IP packet of {} bytes", s.ip_length);
        assert!(s.ours().len() <= 1, "{:?}", s.options);
        let room: usize = s.options.iter().map(Vec::len).sum();
        assert!(room <= 40, "{:?}", s.options);
    }
}

/// Options of established connections: their form, their order, how many. Gives how many there were
/// each way.
fn assert_options_count_forwards(segments: &[Segment]) -> BTreeMap<bool, usize> {
    let mut last: HashMap<(bool, u16, u8, u8), Tuple> = HashMap::new();
    let mut times: HashMap<(bool, u16), Vec<u64>> = HashMap::new();
    for s in segments.iter().filter(|s| !s.syn && !s.ours().is_empty()) {
        assert_eq!(s.ours()[0].len(), LEN);
        let end = (s.from_server, s.client_port);
        times.entry(end).or_default().push(s.at_ns);
        let Some(new) = s.tuple() else {
            assert_eq!(s.ours()[0][4] >> 4, STATE, "{:?}", s.ours());
            continue;
        };
        let queue = (end.0, end.1, new.item as u8, new.queue as u8);
        if let Some(old) = last.insert(queue, new) {
            let ahead = |new: u32, old: u32| new.wrapping_sub(old).cast_signed() >= 0;
            let time = new.time.wrapping_sub(old.time) & TIME_MASK;
            assert!(time <= TIME_MASK / 2, "time ran backwards: {old:?} {new:?}");
            assert!(ahead(new.total, old.total), "{old:?} {new:?}");
            assert!(ahead(new.integral, old.integral), "{old:?} {new:?}");
        }
    }
    let mut count = BTreeMap::new();
    for ((from_server, _), times) in times {
        let span = times[times.len() - 1] - times[0];
        // a fifth more: stamps of the capture and of the sender differ by scheduling
        let most = 5 + (span / PERIOD_NS) * 6 / 5;
        assert!(
            times.len() as u64 <= most,
            "{} options in {span} ns",
            times.len()
        );
        *count.entry(from_server).or_default() += times.len();
    }
    count
}

fn two_sided(lines: &[Line], side: Side) -> bool {
    let wanted = |l: &&Line| l.side == side && l.estimator == Estimator::TwoSided;
    lines.iter().filter(wanted).count() >= 3
}

#[test]
fn options_on_the_wire_are_as_documented_and_no_segment_outgrows_the_path() {
    let stage = Stage::build("wire");
    let _redis = stage.redis();
    let (server, client) = both(&stage);
    let capture = Capture::start(&stage, PORT);
    for options in [
        "--rate 4000 --duration 2s --value-size 64 --connections 2",
        "--rate 1500 --duration 2s --value-size 16384 --get-ratio 0.5 --nodelay off",
        "--rate 1500 --duration 1s --value-size 1400 --get-ratio 0.5",
    ] {
        Load::start(&stage.hosts.client, stage.redis_address(), options).report();
    }
    let segments = capture.finish();
    assert!(two_sided(&server.finish(), Side::Server));
    assert!(two_sided(&client.finish(), Side::Client));

    assert_handshakes_offer(&segments);
    assert_segments_fit(&segments);
    let count = assert_options_count_forwards(&segments);
    assert!(count[&false] > 500 && count[&true] > 500, "{count:?}");
    // the options took nothing from full segments: 1500 - 20 - 20 - 12 of timestamps
    let largest = segments.iter().map(|s| s.payload).max();
    assert_eq!(largest, Some(1448));
    let together = |s: &&Segment| !s.syn && !s.ours().is_empty();
    assert!(
        segments
            .iter()
            .filter(together)
            .all(Segment::has_timestamps)
    );
}

mod long {
    use super::*;

    #[test]
    fn under_loss_transfers_complete_and_options_give_way_to_sack() {
        let stage = Stage::build("loss");
        let _redis = stage.redis();
        let (server, client) = both(&stage);
        let capture = Capture::start(&stage, PORT);
        let load = |rate, duration| {
            let what = "--value-size 16384 --get-ratio 0.5 --connections 4";
            let options = format!("--rate {rate} --duration {duration} {what}");
            Load::start(&stage.hosts.client, stage.redis_address(), &options)
        };
        let lasting = load(300, "300s");
        let ends = [(&server, Side::Server), (&client, Side::Client)];
        for (watch, side) in ends {
            watch.until_estimator(side, Estimator::TwoSided);
        }
        let filters = [&stage.hosts.server, &stage.hosts.client].map(|h| Filter::add(h, LOSS));
        let begin = now_ns();
        for (watch, side) in ends {
            watch.until("estimates under loss", begin, |lines| {
                let known = |l: &&Line| l.side == side && l.latency_ns.total.is_some();
                lines.iter().filter(known).count() >= 8
            });
        }
        for filter in filters {
            assert!(filter.hits() > 0, "nothing was lost");
        }
        for (watch, side) in ends {
            watch.until_estimator(side, Estimator::TwoSided);
        }
        drop(lasting);
        let report = load(600, "2s").report();
        assert!(report.requests > 1000, "{report:?}");
        let segments = capture.finish();
        assert_segments_fit(&segments);
        assert_options_count_forwards(&segments);
        assert!(segments.iter().any(Segment::has_sack), "no SACK was needed");
    }
}
