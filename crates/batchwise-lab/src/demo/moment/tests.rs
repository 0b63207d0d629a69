//! Tests of [`super::Matcher`] and [`super::Moment`].

use super::super::plan::PHASES;
use super::super::samples::{interval, line, moment};
use super::*;
use crate::decisions::samples::decision;

const SECOND: u64 = 1_000_000_000;

fn matcher() -> Matcher {
    Matcher::new(Plan::new(true), PHASES[0])
}

/// A watcher's lines over `from..to` that end 130 ms out of phase with whole seconds.
fn lines(side: Side, from: u64, to: u64, total_ns: u64) -> Vec<Line> {
    let step = 200_000_000;
    let ends = (from..to).step_by(step as usize);
    ends.map(|end| line(side, end + 130_000_000, total_ns))
        .collect()
}

#[test]
fn an_interval_waits_for_lines_past_its_end_from_both_watchers() {
    let (mut matcher, now) = (matcher(), Instant::now());
    matcher.interval(interval(2 * SECOND, 1e5, 2e4), now);
    let to_the_end = lines(Side::Client, SECOND, 2 * SECOND + 1, 20_000);
    matcher.lines(
        to_the_end,
        lines(Side::Server, SECOND, 2 * SECOND - 1, 20_000),
    );
    assert!(matcher.next(now).is_none() && matcher.is_waiting());
    matcher.lines(
        vec![],
        vec![line(Side::Server, 2 * SECOND + 130_000_000, 20_000)],
    );
    let found = matcher.next(now).unwrap();
    assert_eq!(found.client.unwrap().total_ns, Some(20_000.0));
    assert_eq!(found.server.unwrap().lines, 6);
    assert!(!matcher.is_waiting());
}

#[test]
fn an_interval_whose_lines_never_come_is_shown_without_them() {
    let (mut matcher, now) = (matcher(), Instant::now());
    matcher.interval(interval(2 * SECOND, 1e5, 2e4), now);
    assert!(matcher.next(now).is_none());
    let found = matcher.next(now + PATIENCE).unwrap();
    assert!(found.client.is_none() && found.error(Side::Client).is_none());
}

#[test]
fn a_line_across_two_seconds_counts_in_both() {
    let (mut matcher, now) = (matcher(), Instant::now());
    let all = |side| lines(side, SECOND, 3 * SECOND + 1, 20_000);
    matcher.lines(all(Side::Client), all(Side::Server));
    matcher.interval(interval(2 * SECOND, 1e5, 2e4), now);
    matcher.interval(interval(3 * SECOND, 1e5, 2e4), now);
    let found = [(); 2].map(|()| matcher.next(now).unwrap());
    assert_eq!(found.each_ref().map(|m| m.at_s), [1.0, 2.0]);
    assert_eq!(found.map(|m| m.client.unwrap().lines), [6, 6]);
}

#[test]
fn the_error_is_signed_and_a_share_of_what_was_measured() {
    let error = moment(1, true, 1e5, 20_000.0, 18_000.0)
        .error(Side::Server)
        .unwrap();
    assert!((error + 0.1).abs() < 1e-9);
}

#[test]
fn an_estimate_of_one_end_alone_has_no_error_to_speak_of() {
    let mut alone = moment(1, true, 1e5, 20_000.0, 18_000.0);
    if let Some(end) = &mut alone.client {
        end.estimator = Estimator::Local;
    }
    assert_eq!(alone.error(Side::Client), None);
}

#[test]
fn the_offered_load_is_that_of_the_plan_also_when_the_generator_is_behind() {
    let (mut matcher, now) = (matcher(), Instant::now());
    for second in [2, 3] {
        matcher.interval(interval(second * SECOND, 1e3, 2e4), now);
    }
    let found = [(); 2].map(|()| matcher.next(now + PATIENCE).unwrap());
    assert_eq!(found.each_ref().map(|m| m.offered_rps), [35e3, 65e3]);
    assert!(found[1].saturated && found[1].arm == Arm::Nodelay);
    matcher.begin(PHASES[1]);
    matcher.interval(interval(9 * SECOND, 1e3, 2e4), now);
    let next = matcher.next(now + PATIENCE).unwrap();
    assert_eq!(
        (next.at_s, next.offered_rps, next.arm),
        (8.0, 35e3, Arm::Nagle)
    );
}

#[test]
fn while_batchwise_tunes_a_second_waits_for_no_lines_and_has_what_was_decided() {
    let (mut matcher, now) = (matcher(), Instant::now());
    let phase = PHASES[2];
    matcher.begin(phase);
    let mut decided = decision(1.5, "adopt", "on");
    matcher.decisions(vec![decided.clone()]);
    (decided.ts_ns, decided.nagle) = (3 * SECOND, Some("off".into()));
    matcher.decisions(vec![decided]);
    matcher.interval(interval(2 * SECOND, 1e5, 2e4), now);
    let found = matcher.next(now).unwrap();
    assert_eq!((found.arm, found.nagle), (Arm::Batchwise, Some(Nagle::On)));
    assert!(found.client.is_none());
}
