//! Terminals that go away or take nothing any more: every live view ends, as at SIGTERM, and is never held up. Needs root.

use std::time::{Duration, Instant};

use batchwise_testbed::commands;
use batchwise_testbed::live_views::{self, LiveView};
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::stage::{PATIENCE, Stage, batchwise, eventually, turn};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::terminal::{AtTerminal, Hangup};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

/// Whoever ends in order after its terminal has gone takes no more CPU time than this.
const LITTLE: Duration = Duration::from_millis(500);

fn live_views(stage: &Stage, folder: &TempDir, hangup: Hangup) -> Vec<LiveView> {
    let command = commands::required("batchwise");
    let stop = Stop::default();
    live_views::start(&command, &stage.hosts, folder.path(), hangup, &stop).expect("live views")
}

#[test]
fn every_live_view_ends_in_order_when_its_terminal_is_gone() {
    let stage = Stage::build("terminal");
    for hangup in [Hangup::Told, Hangup::Ignored] {
        let folder = TempDir::new().expect("a folder");
        // the last looks at one before it
        for view in live_views(&stage, &folder, hangup).into_iter().rev() {
            let name = view.name;
            let ended = view.end_of_terminal(&Stop::default());
            let ended = ended.unwrap_or_else(|error| panic!("{hangup:?}: {error:#}"));
            assert!(
                ended.cpu < LITTLE,
                "{hangup:?}: {name} took {:?}",
                ended.cpu
            );
        }
    }
}

#[test]
fn keys_end_every_live_view() {
    let stage = Stage::build("keys");
    let folder = TempDir::new().expect("a folder");
    let views = live_views(&stage, &folder, Hangup::Told);
    for (mut view, key) in views
        .into_iter()
        .rev()
        .zip([b"q", b"\x1b", b"\x03"].iter().cycle())
    {
        view.at.press(*key).expect("pressed");
        let name = view.name;
        let ended = || {
            view.at.drawn().expect("a terminal");
            view.at
                .process
                .has_ended()
                .expect("a process")
                .then_some(())
        };
        eventually("it to end", ended, || name.to_owned());
        let status = view
            .at
            .process
            .wait(&Stop::default(), PATIENCE)
            .expect("it ends");
        assert!(status.success(), "{name}: {status}");
    }
}

/// Watches a port that nobody serves, and has drawn that.
fn watch(args: &str) -> AtTerminal {
    let mut command = batchwise();
    command.args([
        "watch",
        "--port",
        "17099",
        "--interval",
        "20ms",
        "--format",
        "live",
    ]);
    command.args(args.split_whitespace());
    let mut watch = AtTerminal::start("watch", command, Hangup::Told).expect("it starts");
    let drawn = || {
        watch
            .drawn()
            .expect("a terminal")
            .contains("17099")
            .then_some(())
    };
    eventually("a frame", drawn, String::new);
    watch
}

/// It ended in order, and within this time since `begin`.
fn assert_ended(mut watch: AtTerminal, begin: Instant, within: Duration) {
    let status = watch
        .process
        .wait(&Stop::default(), PATIENCE)
        .expect("it ends");
    assert!(status.success(), "{status}");
    let took = begin.elapsed();
    assert!(took < within, "it took {took:?}");
}

#[test]
fn a_terminal_that_takes_nothing_holds_up_neither_a_signal_nor_the_end_of_the_duration() {
    let _turn = turn();
    // its last text has five seconds
    let decent = Duration::from_secs(10);
    let told = watch("");
    told.stop().expect("stopped");
    let begin = Instant::now();
    kill(told.process.pid(), Signal::SIGTERM).expect("signalled");
    assert_ended(told, begin, decent);
    let begin = Instant::now();
    let over = watch("--duration 3s");
    over.stop().expect("stopped");
    assert_ended(over, begin, Duration::from_secs(3) + decent);
}

#[test]
fn the_terminal_is_put_back_at_the_end() {
    let _turn = turn();
    let mut watch = watch("");
    let before = cpu_time(watch.process.pid()).expect("a clock");
    watch
        .press(b"jk\x1b[A\x1b[B\x1b[6~\x1bOH")
        .expect("pressed");
    std::thread::sleep(Duration::from_millis(500));
    watch
        .process
        .check_alive()
        .expect("none of these keys ends it");
    let used = cpu_time(watch.process.pid()).expect("a clock") - before;
    assert!(used < LITTLE, "{used:?}");
    watch.press(b"q").expect("pressed");
    let ended = || {
        watch.drawn().expect("a terminal");
        watch.process.has_ended().expect("a process").then_some(())
    };
    eventually("it to end", ended, String::new);
    let drawn = watch.drawn().expect("a terminal");
    // the other screen is left, and the cursor shown
    for sequence in ["\x1b[?1049h", "\x1b[?25l", "\x1b[?1049l", "\x1b[?25h"] {
        assert!(drawn.contains(sequence), "{sequence:?} is not in {drawn:?}");
    }
}
