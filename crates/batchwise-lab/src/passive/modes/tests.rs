use super::estimators::Kind;
use super::flow::{Path, Scenario, Shape, Spread, Think};
use super::*;

const PLAIN: Scenario = Scenario {
    shape: Shape::Single,
    spread: Spread::LogNormal(0.6),
    scale: MS,
    think: Think::None,
    path: Path::Clean,
    jitter: 0.3,
    gaps: 20,
};

fn error(scenario: &Scenario, kind: Kind) -> f64 {
    let index = KINDS.iter().position(|k| k.0 == kind).unwrap();
    score(index, [run(scenario, 40)].iter()).error.unwrap()
}

#[test]
fn one_request_in_flight_is_measured_exactly_by_all_but_the_paper() {
    assert!(error(&PLAIN, Kind::Pure) < 0.001);
    assert!(error(&PLAIN, Kind::Sizes) < 0.001);
    assert!(error(&PLAIN, Kind::Paper(10_000)) > 1.0);
}

#[test]
fn acknowledgments_tell_slow_responses_from_pauses() {
    let bimodal = Scenario {
        spread: Spread::Bimodal,
        ..PLAIN
    };
    assert!(error(&bimodal, Kind::Acks) < 0.01);
    assert!(error(&bimodal, Kind::Sizes) > 1.0);
}

#[test]
fn pure_acknowledgments_take_out_the_think_time_that_they_precede() {
    let thoughtful = Scenario {
        think: Think::Times(10.0),
        ..PLAIN
    };
    // half of the responses are acknowledged at once, the others after more than this think time
    let (without, with) = (
        error(&thoughtful, Kind::Acks),
        error(&thoughtful, Kind::Pure),
    );
    assert!(with < without * 0.75, "{with} {without}");
}

#[test]
fn a_window_that_is_always_full_defeats_gaps_and_not_requests_in_flight() {
    let window = Scenario {
        shape: Shape::Window,
        ..PLAIN
    };
    for kind in [Kind::Acks, Kind::Pure, Kind::Sizes] {
        assert!((0.6..0.9).contains(&error(&window, kind)));
    }
    assert!(error(&window, Kind::Flight) < 0.15);
}
