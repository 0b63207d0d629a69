//! Pictures of the view at 80x24, compared as text.

use batchwise_core::sense::report::{Estimator, Latency, Stages};

use super::super::samples;
use super::*;

const WAITING: &str = "waiting for traffic on port 6379…";

/// The text of the picture, without blanks at the ends of its rows.
fn picture(view: &mut View, width: u16, height: u16) -> String {
    crate::output::picture::picture(width, height, |frame| view.draw(frame))
}

fn view(intervals: &[&[Line]]) -> View {
    let mut view = View::new(WAITING.to_owned());
    for lines in intervals {
        view.interval(lines);
    }
    view
}

#[test]
fn before_any_traffic_it_says_what_it_waits_for() {
    assert_eq!(
        picture(&mut view(&[]), 80, 24),
        include_str!("testdata/waiting.txt")
    );
}

#[test]
fn two_services_at_80x24() {
    let slow = Line {
        latency_ns: Latency {
            total: Some(68_240),
            ..samples::two_sided().latency_ns
        },
        ..samples::two_sided()
    };
    let mut view = view(&[
        &[slow],
        &[],
        &[samples::two_sided(), samples::local()],
        &[samples::two_sided(), samples::local()],
    ]);
    assert_eq!(
        picture(&mut view, 80, 24),
        include_str!("testdata/two_services.txt")
    );
}

#[test]
fn an_estimate_without_parts_shows_dashes_and_an_empty_bar() {
    let hint = Line {
        estimator: Estimator::Hint,
        latency_ns: Latency {
            total: Some(468_000),
            ..Latency::default()
        },
        stages_ns: Stages::default(),
        ..samples::two_sided()
    };
    let picture = picture(&mut view(&[&[hint]]), 80, 24);
    assert!(
        picture.contains("468 µs  total = – network + – turnaround"),
        "{picture}"
    );
    assert!(picture.contains("application's hint"), "{picture}");
    assert!(!picture.contains('%'), "{picture}");
    assert!(!picture.contains("0 ns"), "{picture}");
}

#[test]
fn more_services_than_fit_can_be_scrolled_to() {
    let lines: Vec<Line> = (1..=5)
        .map(|n| Line {
            service: format!("10.0.0.{n}:80"),
            ..samples::two_sided()
        })
        .collect();
    let mut view = view(&[&lines]);
    let first = picture(&mut view, 80, 24);
    assert!(
        first.contains("10.0.0.3:80") && !first.contains("10.0.0.4:80"),
        "{first}"
    );
    assert!(first.contains("↓ 2 more"), "{first}");
    view.scroll(isize::MAX);
    let last = picture(&mut view, 80, 24);
    assert!(
        !last.contains("10.0.0.2:80") && last.contains("10.0.0.5:80"),
        "{last}"
    );
    assert!(last.contains("↑ 2 more"), "{last}");
    view.scroll(isize::MIN);
    assert_eq!(picture(&mut view, 80, 24), first);
}

#[test]
fn a_name_that_is_too_long_keeps_its_end() {
    let service = "[2001:db8:1234:5678:9abc:def0:1234:5678]:11211".to_owned();
    let picture = picture(
        &mut view(&[&[Line {
            service,
            ..samples::local()
        }]]),
        80,
        24,
    );
    assert!(picture.contains("…"), "{picture}");
    assert!(picture.contains(":11211  client"), "{picture}");
    assert!(picture.contains("local: this end only"), "{picture}");
}

#[test]
fn lost_events_and_messages_are_shown_and_their_absence_is_not() {
    let mut view = view(&[&[samples::two_sided()]]);
    assert!(!picture(&mut view, 80, 24).contains("lost"));
    view.interval(&[samples::local()]);
    view.set_note(Some("WARN something".to_owned()));
    let picture = picture(&mut view, 80, 24);
    assert!(picture.contains("7 events lost"), "{picture}");
    assert!(picture.contains("WARN something"), "{picture}");
}

#[test]
fn every_window_size_can_be_drawn() {
    let mut view = view(&[&[samples::two_sided(), samples::local()]]);
    for (width, height) in [(1, 1), (20, 5), (80, 9), (300, 100)] {
        picture(&mut view, width, height);
    }
}

#[test]
fn cells_of_the_bar_always_add_up_to_its_width() {
    let part = |ns| Part {
        place: Place::Transit,
        ns,
        upper_bound: false,
    };
    for times in [
        [Some(1), Some(1), Some(1), None],
        [Some(u64::MAX), Some(3), None, Some(9)],
    ] {
        let cells = cells(&times.map(part), 78);
        assert_eq!(cells.iter().sum::<u16>(), 78, "{times:?}");
    }
    assert_eq!(cells(&[part(None), part(Some(0))], 78), [0, 0]);
}
