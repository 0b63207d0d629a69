//! Plots and report of `redis-nagle`.

use anyhow::Result;
use maud::{Markup, html};

use super::plan::WORKLOADS;
use super::summary::{PAPER, StepSummary, Summary, WorkloadSummary, Worst};
use super::{Point, Run};
use crate::arm::Arm;
use crate::decisions::{events, nagle_times};
use crate::frame::Frame;
use crate::ladder::Workload;
use crate::plot::{self, Curve, Mark, maybe_duration, thousands};
use crate::report::{Table, figure, percent, ratio, remark};
use crate::timeplot::{self, Height, Span, TimePlot};
use crate::tuner::{Decision, SLO};

/// Writes the plots and the report.
pub(super) fn write(frame: &Frame<'_>, complete: bool, run: &Run, summary: &Summary) -> Result<()> {
    let mut sections = Vec::new();
    for workload in &WORKLOADS {
        let Some(result) = summary.per_workload.get(workload.name) else {
            continue;
        };
        let of_it = |p: &&Point| p.workload == workload.name;
        let points: Vec<_> = run.points.iter().filter(of_it).collect();
        let mut known = run.decisions.iter().filter(|d| d.0 == workload.name);
        let decisions = known.next().map_or(&[][..], |d| &d.1);
        sections.push(section(frame, workload, &points, decisions, result)?);
    }
    let body = html! {
        h2 { "Summary" }
        (overview(summary))
        p {
            "Latencies are means from the intended send time, medians over repeats; ratios are \
             medians of the repeats' own ratios. The SLO is a mean of 500 µs. "
            "“Range”: the highest load under the SLO with batchwise over that with TCP_NODELAY, the \
             default of Redis and its clients. “Latency”: TCP_NODELAY's latency over batchwise's at \
             the highest load at which TCP_NODELAY is under the SLO. “Worst”: batchwise's latency \
             over the better static arm's, at the load where that is highest, among the loads at \
             which the better arm is under the SLO. “Learning”: the latency of the first 4 s of a \
             connection with batchwise over TCP_NODELAY's, again where that is highest. The paper \
             computed its figures from two static runs."
        }
        p {
            "The static arms are measured point by point with no agent running; batchwise climbs \
             the same loads just before or after, with an agent at each host that stays, so that a \
             ratio is between measurements some ten seconds to a minute apart."
        }
        @for section in &sections { (section) }
    };
    frame.write_report(
        complete,
        "Redis with TCP_NODELAY, with Nagle, and with batchwise tuning",
        "One open-loop Poisson client on one connection, from light load to collapse. Neither \
         setting is right at every load; batchwise chooses while the service runs.",
        &body,
    )
}

fn overview(summary: &Summary) -> Markup {
    let mut table = Table::new([
        "workload",
        "range",
        "latency",
        "worst vs. better arm",
        "at",
        "beyond the SLO",
        "throughput, worst",
        "learning, worst",
        "TCP_NODELAY up to",
        "Nagle up to",
        "batchwise up to",
    ]);
    for workload in &WORKLOADS {
        let Some(found) = summary.per_workload.get(workload.name) else {
            continue;
        };
        let at_least = if found.range_is_lower_bound {
            "≥ "
        } else {
            ""
        };
        let worst = |worst: Option<Worst>| ratio(worst.map(|w| w.ratio));
        let highest = |arm| {
            let load = found.highest_under_slo_rps.get(&arm);
            load.map_or_else(|| "–".into(), |&rps| thousands(rps as f64))
        };
        table.row([
            workload.name.into(),
            format!("{at_least}{}", ratio(found.range_ratio)),
            ratio(found.latency_ratio),
            ratio(found.worst_vs_best_arm),
            found.worst_point.map_or_else(
                || "–".into(),
                |w| format!("{}, {}", thousands(w.step_rps as f64), w.against.label()),
            ),
            worst(found.worst_beyond_slo),
            worst(found.worst_throughput),
            worst(found.worst_learning),
            highest(Arm::Nodelay),
            highest(Arm::Nagle),
            highest(Arm::Batchwise),
        ]);
    }
    let mut paper = vec!["the paper".into(), ratio(Some(PAPER.range_ratio))];
    paper.push(ratio(Some(PAPER.latency_ratio)));
    paper.resize(table.header.len(), String::new());
    table.rows.push(paper);
    table.html()
}

fn section(
    frame: &Frame<'_>,
    workload: &Workload,
    points: &[&Point],
    decisions: &[Decision],
    result: &WorkloadSummary,
) -> Result<Markup> {
    let (name, file) = (workload.name, workload.file_name());
    let output = &frame.context.output;
    let mut figures = vec![latency_plot(name, &result.steps)?];
    output.write(&format!("latency-{file}.svg"), &figures[0])?;
    if !decisions.is_empty() {
        let svg = decision_plot(name, points, decisions)?;
        output.write(&format!("decisions-{file}.svg"), &svg)?;
        figures.push(svg);
    }
    Ok(html! {
        h2 { "Workload " (name) }
        @for svg in &figures { (figure(svg)) }
        details { summary { "Every point" } (point_table(points).html()) }
    })
}

fn latency_plot(name: &str, steps: &[StepSummary]) -> Result<String> {
    let curve = |arm: Arm| Curve {
        label: arm.label().into(),
        color: arm.color(),
        estimated: false,
        points: steps
            .iter()
            .filter_map(|s| Some((s.step_rps as f64, s.latency_ns.get(&arm)?.median)))
            .collect(),
    };
    let slo = Mark {
        label: format!("SLO, {}", plot::duration(SLO.as_nanos() as f64)),
        estimated: true,
        at: SLO.as_nanos() as f64,
    };
    let title = format!("{name}: mean latency from the intended send time");
    plot::latency_with_level(&title, &Arm::ALL.map(curve), &[], Some(&slo))
}

/// The first repetition with batchwise: its loads, one after another, and what was decided.
fn decision_plot(name: &str, points: &[&Point], decisions: &[Decision]) -> Result<String> {
    let tuned: Vec<_> = points
        .iter()
        .filter(|p| p.arm == Arm::Batchwise && p.repeat == 0)
        .collect();
    let begin = |p: &Point| {
        let learning = p.learning.as_ref();
        learning.map_or(p.window.from_ts_ns, |l| l.from_ts_ns)
    };
    let zero = tuned.first().map_or(0, |p| begin(p));
    let end = tuned.last().map_or(zero, |p| p.window.to_ts_ns);
    let seconds = |ts: u64| ts.saturating_sub(zero) as f64 / 1e9;
    let piece = |p: &&&Point| {
        let phases = p.learning.iter().chain([&p.window]);
        phases
            .flat_map(|l| {
                let mean = l.latency_ns.mean;
                [(seconds(l.from_ts_ns), mean), (seconds(l.to_ts_ns), mean)]
            })
            .collect()
    };
    let span = |p: &&&Point| Span {
        from: seconds(begin(p)),
        to: seconds(p.window.to_ts_ns),
        name: thousands(p.step_rps as f64),
    };
    TimePlot {
        title: &format!("{name}: one run of batchwise over climbing loads"),
        height: Height::Latency,
        curves: vec![timeplot::Curve {
            label: "mean: learning, then measured".into(),
            color: Arm::Batchwise.color(),
            dashed: false,
            pieces: tuned.iter().map(piece).collect(),
        }],
        spans: tuned.iter().map(span).collect(),
        shaded: Some(("Nagle at the client", nagle_times(decisions, zero, end))),
        events: events(decisions, zero, end),
        level: Some((SLO.as_nanos() as f64, "SLO")),
    }
    .svg()
}

fn point_table(points: &[&Point]) -> Table {
    let mut table = Table::new([
        "load",
        "arm",
        "repeat",
        "achieved",
        "mean",
        "p99",
        "from send",
        "learning",
        "Nagle",
        "",
    ]);
    for point in points {
        let window = &point.window;
        table.row([
            thousands(point.step_rps as f64),
            point.arm.label().into(),
            (point.repeat + 1).to_string(),
            thousands(window.achieved_rps),
            maybe_duration(Some(window.latency_ns.mean)),
            maybe_duration(Some(window.latency_ns.p99)),
            maybe_duration(Some(window.latency_from_send_ns.mean)),
            maybe_duration(point.learning.as_ref().map(|l| l.latency_ns.mean)),
            percent(point.nagle_share),
            remark(point.saturated, window.valid, &window.why_invalid),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::point;
    use super::*;
    use crate::decisions::samples::decision;

    #[test]
    fn the_plot_has_all_arms_the_slo_and_collapses() {
        let points = [
            point(Arm::Nodelay, 100, 0, Some(20.0)),
            point(Arm::Nodelay, 200, 0, None),
            point(Arm::Nagle, 100, 0, Some(25.0)),
            point(Arm::Batchwise, 100, 0, Some(21.0)),
        ];
        let summary = Summary::of(&points);
        let svg = latency_plot("64B", &summary.per_workload["64B"].steps).unwrap();
        for part in ["TCP_NODELAY", "Nagle", "batchwise", "SLO, 500 µs"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("inf"));
        let points: Vec<_> = points.iter().collect();
        let svg = decision_plot("64B", &points, &[decision(0.1, "probe", "on")]).unwrap();
        assert!(svg.contains("probe") && svg.contains("100k"));
        assert!(overview(&summary).into_string().contains("2.80"));
    }
}
