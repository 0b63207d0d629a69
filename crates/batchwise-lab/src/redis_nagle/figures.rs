//! Plots and report of `redis-nagle`.

use super::plan::WORKLOADS;
use super::summary::{PAPER, StepSummary, Summary, WorkloadSummary};
use crate::arm::Arm;
use crate::engine::text::{duration, ratio, thousands};
use crate::engine::{Figure, Ratio, Report, Table, Verdict};
use crate::ladder::Workload;
use crate::tuner::SLO;

pub(super) fn report(summary: &Summary) -> Report {
    let mut report = Report::new(
        "Redis with TCP_NODELAY, with Nagle, and with batchwise tuning",
        "One open-loop Poisson client on one connection, from light load to collapse. Neither \
         setting is right at every load; batchwise chooses while the service runs.",
    )
    .heading("Summary")
    .table(overview(summary))
    .text(
        "Latencies are means from the intended send time, medians over repeats; ratios are medians \
         of the repeats' own ratios, with a 95 % bootstrap interval. Fewer than 15 pairs decide \
         nothing. The SLO is a mean of 500 µs. “Range”: the highest load under the SLO with \
         batchwise over that with TCP_NODELAY, the default of Redis and its clients. “Latency”: \
         TCP_NODELAY's latency over batchwise's at the highest load at which TCP_NODELAY is under \
         the SLO. “Against the better arm”: batchwise's latency over the better static arm's, at \
         each load that this one carries; at most 1.05 is asked for. “Against the own setting”: the \
         latency from the first request on, learning included, over TCP_NODELAY's; at most 1.02 is \
         asked for. The paper computed its figures from two static runs.",
    )
    .text(
        "At each load the arms follow each other in random order, each on a connection of its own: \
         a second from the first request on, in which batchwise learns, then the measured time. The \
         agent is at the client's host alone, and knows nothing at the begin. Intervals of 20 ms \
         that a stall of the machine disturbed are left out, of all arms alike.",
    );
    for workload in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            report = report
                .heading(format!("Workload {}", workload.name))
                .figure(latency_plot(workload, &result.steps))
                .table(steps_table(&result.steps));
        }
    }
    report
}

pub(super) fn overview(summary: &Summary) -> Table {
    type Row<'a> = (&'a str, &'a WorkloadSummary);
    let highest = |row: &Row, arm| {
        let load = row.1.highest_under_slo_rps.get(&arm);
        load.map_or_else(|| "–".into(), |&rps| thousands(rps as f64))
    };
    let judged = |of: Option<&Ratio>, verdict: Verdict| match verdict {
        Verdict::Undecided => Ratio::text(of),
        verdict => format!("{}: {}", Ratio::text(of), verdict.name()),
    };
    let counts = |[met, missed, undecided]: [usize; 3]| {
        format!("{met} met, {missed} missed, {undecided} undecided")
    };
    let known = |w: &Workload| Some((w.name, summary.per_workload.get(w.name)?));
    let mut table = Table::of(
        WORKLOADS.iter().filter_map(known),
        &[
            ("workload", &|row| row.0.into()),
            ("range", &|(_, w)| {
                let bound = if w.range_is_lower_bound { "≥ " } else { "" };
                let range = judged(w.range_interval.as_ref(), w.range_verdict);
                format!("{bound}{range}")
            }),
            ("latency", &|(_, w)| {
                judged(w.latency_interval.as_ref(), w.latency_verdict)
            }),
            ("against the better arm", &|(_, w)| {
                counts([w.points_met, w.points_missed, w.points_undecided])
            }),
            ("against the own setting", &|(_, w)| {
                counts([w.own_met, w.own_missed, w.own_undecided])
            }),
            ("TCP_NODELAY up to", &|row| highest(row, Arm::Nodelay)),
            ("Nagle up to", &|row| highest(row, Arm::Nagle)),
            ("batchwise up to", &|row| highest(row, Arm::Batchwise)),
        ],
    );
    let [range, latency] = [PAPER.range_ratio, PAPER.latency_ratio].map(|r| ratio(Some(r)));
    let mut paper = vec!["the paper".into(), range, latency];
    paper.resize(table.header.len(), String::new());
    table.rows.push(paper);
    table
}

fn steps_table(steps: &[StepSummary]) -> Table {
    let latency = |step: &StepSummary, arm| {
        let median = step.latency_ns.get(&arm).map(|spread| spread.median);
        median.map_or_else(|| "–".into(), duration)
    };
    let judged =
        |of: Option<&Ratio>, verdict: Verdict| format!("{}: {}", Ratio::text(of), verdict.name());
    Table::of(
        steps,
        &[
            ("load", &|s| thousands(s.step_rps as f64)),
            ("TCP_NODELAY", &|s| latency(s, Arm::Nodelay)),
            ("Nagle", &|s| latency(s, Arm::Nagle)),
            ("batchwise", &|s| latency(s, Arm::Batchwise)),
            ("over the better arm", &|s| {
                judged(s.vs_better.as_ref(), s.vs_better_verdict)
            }),
            ("over the own setting, learning included", &|s| {
                judged(s.vs_own.as_ref(), s.vs_own_verdict)
            }),
        ],
    )
}

pub(super) fn latency_plot(workload: &Workload, steps: &[StepSummary]) -> Figure {
    let slo = SLO.as_nanos() as f64;
    let title = format!(
        "{}: mean latency from the intended send time",
        workload.name
    );
    let file = format!("latency-{}.svg", workload.file_name());
    let mut figure = Figure::latency_over_load(file, title);
    for arm in Arm::ALL {
        let point = |s: &StepSummary| Some((s.step_rps as f64, s.latency_ns.get(&arm)?.median));
        let line = steps.iter().filter_map(point).collect();
        figure = figure.measured(arm.label(), arm.color(), line);
    }
    figure.level(format!("SLO, {}", duration(slo)), slo)
}
