//! The picture at the end: the same loads, three arms side by side, in text.

use super::moment::Moment;
use crate::arm::Arm;
use crate::plot::{duration, thousands};
use crate::stats::median;

/// Rows of the picture.
const ROWS: usize = 8;
/// Columns of a bar.
const BAR: usize = 10;

/// Mean latency since requests were due, by load and arm, with a bar on a log scale each; empty
/// unless batchwise has tuned.
pub fn picture(moments: &[Moment]) -> String {
    if !moments.iter().any(|m| m.arm == Arm::Batchwise) {
        return String::new();
    }
    let top = moments.iter().map(|m| m.offered_rps).fold(0.0, f64::max);
    let rows: Vec<_> = (0..ROWS)
        .map(|row| {
            let of_row = |m: &&Moment| {
                let at = (m.offered_rps / top * ROWS as f64).ceil() as usize;
                at.clamp(1, ROWS) == row + 1
            };
            let of_row: Vec<_> = moments.iter().filter(of_row).collect();
            let load = (row as f64 + 0.5) / ROWS as f64 * top;
            (load, Arm::ALL.map(|arm| latency(&of_row, arm)))
        })
        .collect();
    let all = || rows.iter().flat_map(|row| row.1).flatten();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(1.0, f64::max));
    let mut text = format!("{:>9}", "load");
    for arm in Arm::ALL {
        text.push_str(&format!("   {:<width$}", arm.label(), width = BAR + 9));
    }
    for (load, latencies) in &rows {
        let load = thousands((load / 1000.0).round() * 1000.0);
        text.push_str(&format!("\n{:>9}", format!("{load}/s")));
        for latency in latencies {
            let shown = latency.map_or_else(|| "–".into(), duration);
            let length = latency.map_or(0, |ns| bar(ns, low, high));
            let bar = "█".repeat(length);
            text.push_str(&format!("   {bar:<BAR$} {shown:<8}"));
        }
    }
    text
}

fn latency(moments: &[&Moment], arm: Arm) -> Option<f64> {
    let of_arm = moments.iter().filter(|m| m.arm == arm);
    let latencies: Vec<f64> = of_arm
        .filter_map(|m| m.truth.mean_from_intended_ns)
        .collect();
    median(&latencies)
}

/// Columns of a latency between the lowest and the highest.
fn bar(ns: f64, low: f64, high: f64) -> usize {
    let share = (ns / low).ln() / (high / low).ln().max(1e-9);
    1 + (share.clamp(0.0, 1.0) * (BAR - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::super::samples::moment;
    use super::*;

    #[test]
    fn three_arms_stand_side_by_side_at_each_load() {
        let mut moments = Vec::new();
        for (second, arm) in Arm::ALL.into_iter().enumerate() {
            for step in 1..=ROWS as u64 {
                let slow = arm == Arm::Nodelay && step > 6;
                let mean = if slow { 9e6 } else { 2e4 };
                let rps = step as f64 * 40_000.0;
                let at = second as u64 * 10 + step;
                let mut moment = moment(at, true, rps, mean, mean);
                moment.arm = arm;
                moments.push(moment);
            }
        }
        let text = picture(&moments);
        assert_eq!(text.lines().count(), ROWS + 1);
        assert!(
            text.lines()
                .all(|line| line.trim_end().chars().count() < 80)
        );
        let last = text.lines().last().unwrap();
        assert!(last.contains("300k/s") && last.contains("██████████ 9.9 ms"));
        assert_eq!(last.matches("22 µs").count(), 2, "{last}");
    }

    #[test]
    fn without_tuning_there_is_no_picture() {
        assert_eq!(picture(&[moment(1, true, 1e5, 2e4, 2e4)]), "");
    }
}
