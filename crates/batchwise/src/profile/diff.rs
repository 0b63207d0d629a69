//! `profile diff A B`: what changed from one profile to another, and whether that is more than noise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use batchwise_core::profile::Component;
use batchwise_core::profile::report::{Line, Only};
use clap::Args;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use crate::frame::human::{duration, percent, word};
use crate::frame::stdout;

/// Compare two profiles, component by component.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Lines of `batchwise profile --format jsonl`: before
    a: PathBuf,
    /// The same: after
    b: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Fewer intervals say nothing about noise.
pub const FEWEST: usize = 5;

/// What became of a component. The field names are a contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// Which. null: all of them together.
    pub component: Option<Component>,
    /// CPUs' worth of time before, or ns a KB: the mean of the intervals.
    pub before: f64,
    /// After.
    pub after: f64,
    /// The difference, with a 95 % interval: Welch's, of intervals or of turns.
    pub change: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Change {
    /// The interval does not reach 0.
    pub fn is_more_than_noise(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// What to say beside it.
    pub fn noise(&self) -> &'static str {
        match self.is_more_than_noise() {
            true => "",
            false => "   within noise",
        }
    }
}

pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (before, after) = (read(&args.a)?, read(&args.b)?);
    if let Some(why) = not_comparable(&before, &after) {
        bail!(
            "{} and {} cannot be compared: {why}",
            args.a.display(),
            args.b.display()
        );
    }
    let changes = changes(&before, &after, busy);
    let text = match args.json {
        true => serde_json::to_string(&changes)? + "\n",
        false => text(&changes),
    };
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(changes: &[Change]) -> String {
    let mut text = "CPU time, in shares of one CPU; 95 % intervals\n\n".to_owned();
    text += "component           before      after     change\n";
    for change in changes {
        let name = change.component.map_or("all", Component::label);
        let (before, after) = (percent(change.before), percent(change.after));
        let (low, high) = (signed(change.low), signed(change.high));
        let noise = change.noise();
        let by = signed(change.change);
        text +=
            &format!("{name:<14} {before:>11} {after:>10} {by:>10}  ({low} to {high}){noise}\n");
    }
    text
}

fn signed(share: f64) -> String {
    format!("{:+.2} %", share * 100.0)
}

fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
    let lines = text.lines().map(serde_json::from_str);
    let lines: Vec<Line> = lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{name} is not what `batchwise profile --format jsonl` writes"))?;
    if lines.len() < FEWEST {
        bail!(
            "{name} has {} intervals, and noise cannot be told from fewer than {FEWEST}: profile for longer",
            lines.len()
        );
    }
    Ok(lines)
}

/// Why nothing follows from a difference between these.
fn not_comparable(before: &[Line], after: &[Line]) -> Option<String> {
    // a service that was started anew has other processes
    let how = |line: &Line| {
        let clock = word(&line.clock);
        let Only {
            ports,
            pids,
            cgroup,
            cpus,
        } = line.only.clone();
        (clock, line.hz, ports, pids.len(), cgroup, cpus)
    };
    let says = |line: &Line| {
        let only = match line.only.says() {
            all if all.is_empty() => " everywhere".to_owned(),
            only => only,
        };
        format!("{} Hz ({}){only}", line.hz, word(&line.clock))
    };
    let first = before.first()?;
    let mut all = before.iter().chain(after);
    if let Some(other) = all.find(|line| how(line) != how(first)) {
        return Some(format!("one is {}, the other {}", says(first), says(other)));
    }
    let [a, b] = [before, after].map(|lines| {
        let mut times: Vec<_> = lines.iter().map(|line| line.interval_ns).collect();
        times.sort_unstable();
        times[times.len() / 2]
    });
    let differ = a.abs_diff(b) as f64 > 0.1 * a as f64;
    differ.then(|| format!("intervals of {} and of {}", duration(a), duration(b)))
}

/// All components together, and each that took any time. `spent` says what one took, or all.
pub fn changes<T>(
    before: &[T],
    after: &[T],
    spent: impl Fn(&T, Option<Component>) -> f64,
) -> Vec<Change> {
    let all = std::iter::once(None).chain(Component::ALL.map(Some));
    let change = |component| {
        let of = |all: &[T]| -> Vec<f64> { all.iter().map(|one| spent(one, component)).collect() };
        compare(component, &of(before), &of(after))
    };
    let changes = all.map(change);
    changes
        .filter(|c| c.before > 0.0 || c.after > 0.0)
        .collect()
}

/// CPUs' worth of time in an interval.
pub fn busy(line: &Line, component: Option<Component>) -> f64 {
    line.cpus_busy * component.map_or(1.0, |component| line.share(component))
}

/// The means of the first and of the second, and their difference with Welch's interval: Student's for two variances. Each
/// has at least two values.
fn compare(component: Option<Component>, before: &[f64], after: &[f64]) -> Change {
    let [(before, a, n), (after, b, m)] = [before, after].map(|values| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|v| (v - mean) * (v - mean));
        // the variance of the mean
        (mean, squares.sum::<f64>() / (count - 1.0) / count, count)
    });
    let error = (a + b).sqrt();
    let freedom = (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0));
    // values that never differ have no freedom, and no error
    let student = StudentsT::new(0.0, 1.0, freedom).ok();
    let reach = student.map_or(0.0, |student| student.inverse_cdf(0.975) * error);
    let change = after - before;
    Change {
        component,
        before,
        after,
        change,
        low: change - reach,
        high: change + reach,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchwise_core::profile::Tally;
    use batchwise_core::profile::report::{Clock, Sampled};
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    /// Of so many pairs of profiles of the same, the share that are told to differ.
    fn false_alarms(intervals: [usize; 2], value: impl Fn(&mut StdRng) -> f64) -> f64 {
        let mut random = StdRng::seed_from_u64(17);
        let pairs = 4_000;
        let alarms = (0..pairs).filter(|_| {
            let mut draw = |n: usize| (0..n).map(|_| value(&mut random)).collect::<Vec<_>>();
            let [before, after] = intervals.map(&mut draw);
            compare(None, &before, &after).is_more_than_noise()
        });
        alarms.count() as f64 / f64::from(pairs)
    }

    #[test]
    fn of_profiles_of_the_same_one_in_twenty_is_told_to_differ() {
        let normal = |random: &mut StdRng| (0..12).map(|_| random.random::<f64>()).sum::<f64>();
        // a few slow intervals among many fast ones
        let skewed = |random: &mut StdRng| -(1.0 - random.random::<f64>()).ln();
        for intervals in [[5, 5], [10, 10], [20, 20], [5, 20]] {
            let alarms = [
                false_alarms(intervals, normal),
                false_alarms(intervals, skewed),
            ];
            let [normal, skewed] = alarms;
            assert!((0.03..0.06).contains(&normal), "{intervals:?}: {normal}");
            assert!(skewed < 0.10, "{intervals:?}: {skewed}");
        }
    }

    #[test]
    fn profiles_of_something_else_are_not_compared() {
        let line = |hz, ports: &[u16], interval_ns| {
            let only = Only {
                ports: ports.to_vec(),
                ..Only::default()
            };
            let (ts_ns, clock) = (0, Clock::Timer);
            let (cpus, lost) = (&[][..], 0);
            let sampled = Sampled {
                ts_ns,
                interval_ns,
                clock,
                hz,
                only,
                cpus,
                lost,
            };
            vec![Line::of(&Tally::default(), sampled); 5]
        };
        let second = 1_000_000_000;
        let first = line(997, &[80], second);
        let why = |other: Vec<Line>| not_comparable(&first, &other);
        assert_eq!(why(line(997, &[80], second + 1_000_000)), None);
        for (other, word) in [
            (line(499, &[80], second), "499 Hz"),
            (line(997, &[81], second), "port 81"),
            (line(997, &[], second), "everywhere"),
            (
                line(997, &[80], second / 5),
                "intervals of 1.00 s and of 200 ms",
            ),
        ] {
            let why = why(other).expect("something else");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn what_wanders_between_intervals_is_noise_and_what_all_show_is_not() {
        let noisy = [0.1, 0.5, 0.2, 0.4, 0.3];
        let change = compare(None, &noisy, &[0.4, 0.1, 0.5, 0.2, 0.35]);
        assert!(!change.is_more_than_noise(), "{change:?}");
        let change = compare(
            None,
            &[0.30, 0.31, 0.29, 0.30, 0.30],
            &[0.2, 0.21, 0.2, 0.19, 0.2],
        );
        assert!(
            change.is_more_than_noise() && change.high < 0.0,
            "{change:?}"
        );
        assert!((change.change + 0.1).abs() < 1e-9, "{change:?}");
    }

    #[test]
    fn what_is_no_profile_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.jsonl");
        fs::write(&path, "{}\n").expect("a file");
        let error = format!("{:#}", read(&path).expect_err("no profile"));
        assert!(
            error.contains("a.jsonl is not what `batchwise profile"),
            "{error}"
        );
        fs::write(&path, "").expect("a file");
        let error = format!("{:#}", read(&path).expect_err("too few"));
        assert!(error.contains("has 0 intervals"), "{error}");
    }
}
