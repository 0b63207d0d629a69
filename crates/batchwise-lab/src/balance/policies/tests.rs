//! What must hold of the policies, on short simulations.

use super::deciders::Kind;
use super::{Point, compare, scenarios};

const LENGTH: f64 = 30.0;

fn point(name: &str, kind: Kind) -> Point {
    let scenario = scenarios::fixed(LENGTH)
        .into_iter()
        .find(|s| s.name == name)
        .unwrap();
    let points = compare(&vec![scenario; 2], &[Kind::Static, kind], 0.5).unwrap();
    points.into_iter().next_back().unwrap()
}

#[test]
fn a_sick_server_loses_connections_within_two_seconds() {
    let own = point("one sick", Kind::Latency);
    assert!(own.p99_reduction > 0.5, "{own:?}");
    assert!(own.reaction_s.unwrap() <= 2.0, "{own:?}");
}

#[test]
fn a_server_that_fails_fast_attracts_nothing() {
    for name in ["fails fast", "fails fast, 80 %"] {
        let fixed = point(name, Kind::Static);
        let own = point(name, Kind::Latency);
        let paper = point(name, Kind::Paper);
        assert!(own.failed < 1.1 * fixed.failed, "{own:?} {fixed:?}");
        assert!(paper.failed > 1.5 * fixed.failed, "{paper:?} {fixed:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let (a, b) = (
        point("slow drift", Kind::Latency),
        point("slow drift", Kind::Latency),
    );
    assert_eq!((a.p99_ms, a.swing), (b.p99_ms, b.swing));
}

#[test]
fn the_ideal_is_better_than_all_that_can_be_had() {
    for kind in [Kind::Random, Kind::Paper, Kind::Latency] {
        let other = point("one sick", kind);
        let ideal = point("one sick", Kind::Oracle);
        assert!(
            ideal.p99_ms.median < other.p99_ms.median,
            "{ideal:?} {other:?}"
        );
    }
}
