//! `profile diff A B`: what changed from one profile to another, and whether that is more than noise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use batchwise_core::profile::Component;
use batchwise_core::profile::report::Line;
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use crate::frame::human::percent;

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
const FEWEST: usize = 5;
const RESAMPLES: usize = 2_000;

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
    /// The difference, and its 95 % bootstrap interval over intervals.
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
}

pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let changes = changes(&read(&args.a)?, &read(&args.b)?);
    if args.json {
        println!("{}", serde_json::to_string(&changes)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("CPU time, in shares of one CPU; 95 % intervals\n");
    println!("component           before      after     change");
    for change in changes {
        let name = change.component.map_or("all", Component::label);
        let (before, after) = (percent(change.before), percent(change.after));
        let (low, high) = (signed(change.low), signed(change.high));
        let verdict = match change.is_more_than_noise() {
            true => "",
            false => "   within noise",
        };
        let by = signed(change.change);
        println!("{name:<14} {before:>11} {after:>10} {by:>10}  ({low} to {high}){verdict}");
    }
    Ok(ExitCode::SUCCESS)
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

/// All components together, and each.
fn changes(before: &[Line], after: &[Line]) -> Vec<Change> {
    let all = std::iter::once(None).chain(Component::ALL.map(Some));
    let change = |component: Option<Component>| {
        let spent = |line: &Line| match component {
            None => line.cpus_busy,
            Some(component) => line.share(component) * line.cpus_busy,
        };
        let spent = |lines: &[Line]| lines.iter().map(spent).collect::<Vec<_>>();
        compare(component, &spent(before), &spent(after))
    };
    let changes = all.map(change);
    changes
        .filter(|c| c.before > 0.0 || c.after > 0.0)
        .collect()
}

/// The means of the first and of the second, and their difference.
pub fn compare(component: Option<Component>, before: &[f64], after: &[f64]) -> Change {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    // the same profiles always have the same interval
    let mut random = StdRng::seed_from_u64(0);
    let mut again = |values: &[f64]| {
        let drawn = values
            .iter()
            .map(|_| values[random.random_range(0..values.len())]);
        drawn.sum::<f64>() / values.len() as f64
    };
    let mut differences: Vec<_> = (0..RESAMPLES)
        .map(|_| again(after) - again(before))
        .collect();
    differences.sort_by(f64::total_cmp);
    let at = |share: f64| differences[(share * (RESAMPLES - 1) as f64) as usize];
    Change {
        component,
        before: mean(before),
        after: mean(after),
        change: mean(after) - mean(before),
        low: at(0.025),
        high: at(0.975),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
