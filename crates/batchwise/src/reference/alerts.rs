//! Recording and alerting rules for Prometheus, of metrics that exist. Objectives are the operator's:
//! `packaging/prometheus/batchwise.slo.yml` is written by hand.

use std::fs;

use super::metrics::heartbeat;
use super::promql::Vocabulary;
use super::{exported, hold, hold_file, root};

/// What rules record, with labels.
pub const RECORDED: &[(&str, &[&str])] = &[
    ("batchwise:slo_latency_seconds", &["service"]),
    ("batchwise:latency_seconds:mean5m", SUBJECT),
    ("batchwise:confidence:mean5m", SUBJECT),
];
const SUBJECT: &[&str] = &["agent", "service", "side", "transport"];

/// A series that is the same for all agents: what to record it as, for which agent, and from what.
const RECORDS: [(&str, &str, &str); 6] = [
    (
        "batchwise:latency_seconds:mean5m",
        "watch",
        r#"avg by (instance, job, service, side) (
  avg_over_time(batchwise_latency_seconds{part="total", unit="sends"}[5m])
)"#,
    ),
    (
        "batchwise:latency_seconds:mean5m",
        "passive",
        r#"sum by (instance, job, service, transport) (
  label_replace(rate(batchwise_passive_latency_seconds_sum[5m]), "service", "$1", "server", "(.+)")
)
/ (
  sum by (instance, job, service, transport) (
    label_replace(rate(batchwise_passive_latency_seconds_count[5m]), "service", "$1", "server", "(.+)")
  ) > 0
)"#,
    ),
    (
        "batchwise:latency_seconds:mean5m",
        "balance",
        r#"sum by (instance, job, service) (
  avg_over_time(batchwise_balance_latency_seconds{statistic="mean"}[5m])
  * on (instance, job, service, backend) rate(batchwise_balance_samples_total[5m])
)
/ (sum by (instance, job, service) (rate(batchwise_balance_samples_total[5m])) > 0)"#,
    ),
    (
        "batchwise:confidence:mean5m",
        "watch",
        r#"avg by (instance, job, service, side) (
  avg_over_time(batchwise_confidence{unit="sends"}[5m])
)"#,
    ),
    (
        "batchwise:confidence:mean5m",
        "passive",
        r#"avg by (instance, job, service, transport) (
  label_replace(avg_over_time(batchwise_passive_confidence[5m]), "service", "$1", "server", "(.+)")
)"#,
    ),
    (
        "batchwise:confidence:mean5m",
        "balance",
        "avg by (instance, job, service) (avg_over_time(batchwise_balance_confidence[5m]))",
    ),
];

struct Alert {
    name: &'static str,
    severity: &'static str,
    /// For how long it must hold.
    after: &'static str,
    expr: &'static str,
    summary: &'static str,
    /// What it means, and what to do.
    description: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "BatchwiseLatencyOverSlo",
        severity: "critical",
        after: "5m",
        // an objective of the service, or else the one without a service; no guesses
        expr: r#"(
  batchwise:latency_seconds:mean5m
    > on (service) group_left () batchwise:slo_latency_seconds{service!=""}
  or
  (batchwise:latency_seconds:mean5m unless on (service) batchwise:slo_latency_seconds{service!=""})
    > on () group_left () batchwise:slo_latency_seconds{service=""}
)
unless (batchwise:confidence:mean5m < 0.3)"#,
        summary: "Requests to {{ $labels.service }} take {{ $value | humanizeDuration }}",
        description: "The mean of five minutes is over the objective, as batchwise {{ $labels.agent }} at {{ $labels.instance }} sees it. The dashboard of that agent says where the time goes.",
    },
    Alert {
        name: "BatchwiseConfidenceLow",
        severity: "info",
        after: "15m",
        expr: "batchwise:confidence:mean5m < 0.3",
        summary: "The latency of {{ $labels.service }} is little more than a guess",
        description: "Confidence is {{ $value | humanizePercentage }}, and there is no alert about this latency meanwhile. There may be few requests, or only one end has an agent that exchanges.",
    },
    Alert {
        name: "BatchwiseAgentDown",
        severity: "warning",
        after: "2m",
        expr: r#"up{job=~"batchwise.*"} == 0"#,
        summary: "The batchwise agent at {{ $labels.instance }} does not answer",
        description: "It has ended, or its port cannot be reached. balance goes on forwarding without it, without health checks.",
    },
    Alert {
        name: "BatchwiseAgentStuck",
        severity: "warning",
        after: "2m",
        // no comparison of clocks: those of two machines may differ
        expr: "changes(batchwise_heartbeat_timestamp_seconds[5m]) == 0",
        summary: "The batchwise agent at {{ $labels.instance }} hangs",
        description: "It answers scrapes, but has updated nothing for five minutes. Agents with an --interval of minutes do that, too.",
    },
    Alert {
        name: "BatchwiseNoAgents",
        severity: "warning",
        after: "5m",
        expr: r#"absent(up{job=~"batchwise.*"})"#,
        summary: "Prometheus knows of no batchwise agent",
        description: "No job whose name begins with batchwise has a target: look at scrape_configs.",
    },
    Alert {
        name: "BatchwiseLostEvents",
        severity: "warning",
        after: "0m",
        expr: "increase(batchwise_lost_events_total[10m]) > 0",
        summary: "The batchwise agent at {{ $labels.instance }} loses events",
        description: "What it lost is missing in its estimates: the machine has too little time for the agent.",
    },
    Alert {
        name: "BatchwiseSeriesDropped",
        severity: "info",
        after: "0m",
        expr: "increase(batchwise_series_dropped_total[10m]) > 0",
        summary: "batchwise watch at {{ $labels.instance }} has more lines than it serves",
        description: "At most 1024 lines of an interval are served. Leave --per-connection out, or watch a cgroup.",
    },
    Alert {
        name: "BatchwiseLogLinesDropped",
        severity: "warning",
        after: "0m",
        expr: "increase(batchwise_log_lines_dropped_total[10m]) > 0",
        summary: "The batchwise agent at {{ $labels.instance }} cannot write its log",
        description: "The disk may be full. The agent goes on without.",
    },
    Alert {
        name: "BatchwiseServerStalls",
        severity: "critical",
        after: "2m",
        expr: "avg_over_time(batchwise_passive_stalled_flows[2m]) > avg_over_time(batchwise_passive_flows[2m])",
        summary: "{{ $labels.server }} does not answer most of its clients",
        description: "Most flows only retransmit and wait, as batchwise passive at {{ $labels.instance }} sees it.",
    },
    Alert {
        name: "BatchwiseFlowTableFull",
        severity: "warning",
        after: "10m",
        expr: "batchwise_passive_table_flows / batchwise_passive_table_capacity > 0.9",
        summary: "batchwise passive at {{ $labels.instance }} has hardly room for more flows",
        description: "The table of flows is {{ $value | humanizePercentage }} full. Flows are evicted then: give it --flows, or fewer ports.",
    },
    Alert {
        name: "BatchwiseBackendDown",
        severity: "warning",
        after: "1m",
        expr: "batchwise_balance_healthy == 0",
        summary: "Backend {{ $labels.backend }} of {{ $labels.service }} is down",
        description: "Its health checks fail, so that it gets no new connections from {{ $labels.instance }}.",
    },
    Alert {
        name: "BatchwiseServiceDown",
        severity: "critical",
        after: "1m",
        expr: r#"sum by (instance, job, service) (
  batchwise_balance_healthy * on (instance, job, service, backend) (1 - batchwise_balance_draining)
) == 0"#,
        summary: "No backend of {{ $labels.service }} takes new connections",
        description: "All are down or drained: batchwise balance status at {{ $labels.instance }} says which.",
    },
    Alert {
        name: "BatchwiseBackendDrained",
        severity: "info",
        after: "1h",
        expr: "batchwise_balance_draining == 1",
        summary: "Backend {{ $labels.backend }} of {{ $labels.service }} has been drained for an hour",
        description: "If that is over: batchwise balance drain {{ $labels.backend }} --undo at {{ $labels.instance }}.",
    },
    Alert {
        name: "BatchwiseInterfaceDetached",
        severity: "critical",
        after: "1m",
        expr: "batchwise_balance_interface_attached == 0",
        summary: "Nothing that arrives at {{ $labels.interface }} is forwarded",
        description: "The interface of {{ $labels.instance }} is gone, or took no program.",
    },
    Alert {
        name: "BatchwiseReloadRefused",
        severity: "warning",
        after: "5m",
        expr: "batchwise_balance_config_last_reload_successful == 0",
        summary: "The configuration of {{ $labels.instance }} was refused",
        description: "The one before it is in force: batchwise balance status says why.",
    },
    Alert {
        name: "BatchwiseConnectionsNotRemembered",
        severity: "warning",
        after: "0m",
        expr: "increase(batchwise_balance_insert_failures_total[10m]) > 0",
        summary: "{{ $labels.instance }} cannot remember all connections",
        description: "They break when backends change: flows in the configuration is too small.",
    },
    Alert {
        name: "BatchwiseMarksOfOthers",
        severity: "warning",
        after: "10m",
        expr: r#"increase(batchwise_burst_unmarked_packets_total{reason="taken"}[10m]) > 0"#,
        summary: "Others use the code points of marks at {{ $labels.instance }}",
        description: "Routers take their packets for bursts: choose other --code-points, or take theirs off where they come in.",
    },
    Alert {
        name: "BatchwiseMarksNotHeard",
        severity: "info",
        after: "10m",
        expr: r#"sum by (instance, job) (rate(batchwise_burst_router_packets_total{fate=~"ignored|overflowed"}[10m]))
/ (
  sum by (instance, job) (rate(batchwise_burst_router_packets_total{fate=~"promised|last|denied|ignored|overflowed"}[10m])) > 0
) > 0.5"#,
        summary: "Most marks at {{ $labels.instance }} are not heard",
        description: "Sources mark more than their credit, or others use the code points: batchwise burst admit shows the sources.",
    },
];

fn yaml() -> String {
    let mut text = "# Written by BLESS=1 cargo test -p batchwise --release --locked reference; docs/guide/grafana.md\n\
                    # says how to use it. Objectives are in batchwise.slo.yml.\n\
                    groups:\n  - name: batchwise-records\n    rules:\n"
        .to_owned();
    let block = |expr: &str| {
        let lines: Vec<_> = expr.lines().map(|l| format!("          {l}\n")).collect();
        format!("        expr: |\n{}", lines.concat())
    };
    for (name, agent, expr) in RECORDS {
        text += &format!("      - record: {name}\n        labels: {{agent: {agent}}}\n");
        text += &block(expr);
    }
    text += "  - name: batchwise-alerts\n    rules:\n";
    for alert in ALERTS {
        text += &format!("      - alert: {}\n{}", alert.name, block(alert.expr));
        text += &format!(
            "        for: {}\n        labels: {{severity: {}}}\n        annotations:\n",
            alert.after, alert.severity
        );
        for (name, words) in [
            ("summary", alert.summary),
            ("description", alert.description),
        ] {
            // a string of JSON is one of YAML
            text += &format!("          {name}: {words:?}\n");
        }
    }
    text
}

/// For people: what is raised, when, and how badly.
fn table() -> String {
    let row = |alert: &Alert| {
        let Alert {
            name,
            severity,
            after,
            ..
        } = alert;
        // as a reader would write it
        let summary = alert
            .summary
            .replace("{{ $labels.", "*")
            .replace(" }}", "*");
        let summary = summary.replace("{{ $value | humanizeDuration*", "so long");
        format!("| `{name}` | {severity} | {after} | {summary} |\n")
    };
    let rows = ALERTS.iter().map(row).collect::<String>();
    "| alert | severity | after | says |\n|---|---|---|---|\n".to_owned() + &rows
}

#[test]
fn the_rules_are_of_metrics_that_exist_and_each_alert_has_a_test() {
    let all = exported();
    let heartbeat = heartbeat();
    let metrics = all.iter().flat_map(|(_, metrics)| metrics);
    let words = Vocabulary {
        metrics: metrics.chain([&heartbeat]).collect(),
        recorded: RECORDED,
    };
    for expr in RECORDS.iter().map(|(_, _, expr)| expr) {
        words.check(expr);
    }
    let tests = fs::read_to_string(root().join("packaging/prometheus/batchwise.test.yml"));
    let tests = tests.expect("the tests of the rules");
    for alert in ALERTS {
        words.check(alert.expr);
        let tested = tests.contains(&format!("alertname: {}\n", alert.name));
        assert!(tested, "{} has no test", alert.name);
    }
    hold_file("packaging/prometheus/batchwise.rules.yml", yaml());
    hold("docs/guide/grafana.md", &[("alerts", table())]);
}
