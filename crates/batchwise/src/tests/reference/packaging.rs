//! The dashboards and rules in `packaging/` are edited by hand. Here they are held to the metrics that agents serve;
//! `make test-metrics` runs them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::metrics::{Exported, of_all};
use super::{exported, read};

/// The series of agents that a text selects, each with the labels that it asks for.
fn selectors(text: &str) -> impl Iterator<Item = (&str, Vec<(&str, &str)>)> {
    text.match_indices("batchwise_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (series, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let quotes: Vec<_> = braces.map_or("", |(inside, _)| inside).split('"').collect();
        let pairs = quotes.chunks_exact(2);
        let labels = pairs.map(|pair| (pair[0].trim_matches([',', ' ', '=', '~', '!']), pair[1]));
        (series, labels.collect())
    })
}

/// The labels that a query groups or joins by, and those of its legend.
fn labels<'a>(query: &'a str, legend: &'a str) -> impl Iterator<Item = &'a str> {
    let grouped = ["by (", "on ("]
        .into_iter()
        .flat_map(|word| query.split(word).skip(1));
    let grouped = grouped.filter_map(|rest| rest.split_once(')'));
    let legend = legend.split("{{").skip(1);
    let legend = legend.filter_map(|rest| rest.split_once("}}"));
    let lists = grouped.chain(legend).map(|(list, _)| list);
    lists.flat_map(|list| list.split(", "))
}

/// The metrics that a text names; panics where it names what no agent serves.
fn named<'a>(metrics: &[&'a Exported], text: &str) -> Vec<&'a Exported> {
    let check = |(series, labels): (&str, Vec<(&str, &str)>)| {
        let metric = metrics.iter().find(|metric| metric.has(series));
        let metric = metric.unwrap_or_else(|| panic!("{series} is not served: {text}"));
        for (label, value) in labels {
            let there = metric.has_label(label, value);
            assert!(there, "{series} never has {label} {value:?}: {text}");
        }
        *metric
    };
    selectors(text).map(check).collect()
}

/// The elements of a list.
fn each<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    of[list].as_array().into_iter().flatten()
}

#[test]
fn dashboards_show_every_metric_of_their_agent_and_no_other() {
    let of_all = of_all();
    for (agent, metrics) in exported() {
        let metrics: Vec<_> = metrics.iter().chain(&of_all).collect();
        let text = read(format!("packaging/grafana/batchwise-{agent}.json"));
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        for choice in each(&dashboard["templating"], "list") {
            named(&metrics, choice["query"].as_str().expect("a query"));
        }
        let mut shown = BTreeSet::new();
        for target in each(&dashboard, "panels").flat_map(|panel| each(panel, "targets")) {
            let query = target["expr"].as_str().expect("a query");
            let of_query = named(&metrics, query);
            for label in labels(query, target["legendFormat"].as_str().expect("a legend")) {
                let mut all = of_query.iter();
                let there = of_query.is_empty() || all.any(|metric| metric.has_label(label, ""));
                assert!(there, "{agent}: nothing has the label {label}: {query}");
            }
            shown.extend(of_query.iter().map(|metric| &metric.name));
        }
        for Exported { name, .. } in metrics {
            assert!(shown.contains(name), "no panel of {agent} shows {name}");
        }
    }
}

#[test]
fn the_dashboard_of_a_fleet_shows_what_its_rules_record_of_metrics_that_exist() {
    let (all, of_all) = (exported(), of_all());
    let metrics = all.iter().flat_map(|(_, metrics)| metrics);
    let metrics: Vec<_> = metrics.chain(&of_all).collect();
    let rules = read("packaging/prometheus/batchwise.fleet.yml");
    let dashboard = read("packaging/grafana/batchwise-fleet.json");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = each(&dashboard, "panels").flat_map(|panel| each(panel, "targets"));
    let choices = each(&dashboard["templating"], "list").map(|choice| &choice["query"]);
    let queries = panels.map(|target| &target["expr"]).chain(choices);
    let queries = queries.map(|query| query.as_str().expect("a query"));
    let queries = queries.collect::<Vec<_>>().join("\n");
    for text in [&rules, &queries] {
        for (series, _) in selectors(text) {
            let is_there = metrics.iter().any(|metric| metric.name == series);
            assert!(is_there, "{series} is not served");
        }
    }
    let records = |text: &str| -> BTreeSet<String> {
        let all = text.match_indices("batchwise:").map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
            rest[..end.unwrap_or(rest.len())].to_owned()
        });
        all.collect()
    };
    let recorded: BTreeSet<_> = rules
        .split("- record: ")
        .skip(1)
        .map(|rule| rule.lines().next().expect("a name").to_owned())
        .collect();
    for record in records(&queries).union(&records(&rules)) {
        assert!(recorded.contains(record), "{record} is not recorded");
    }
    let unseen: Vec<_> = recorded.difference(&records(&queries)).cloned().collect();
    assert_eq!(
        unseen,
        ["batchwise:fleet_requests:rate5m"],
        "what others are made of"
    );
}

#[test]
fn rules_are_of_metrics_that_exist_and_each_alert_is_tested_and_documented() {
    let (all, of_all) = (exported(), of_all());
    let metrics = all.iter().flat_map(|(_, metrics)| metrics);
    let metrics: Vec<_> = metrics.chain(&of_all).collect();
    let rules = read("packaging/prometheus/batchwise.rules.yml");
    let tests = read("packaging/prometheus/tests/batchwise.test.yml");
    let (failing, well) = tests
        .split_once("- name: all is well\n")
        .expect("its last test");
    let names = |text| named(&metrics, text).into_iter().map(|metric| &metric.name);
    names(failing).for_each(drop);
    let well: BTreeSet<_> = names(well).collect();
    for name in names(&rules) {
        assert!(
            well.contains(name),
            "{name} is not in the test where all is well"
        );
    }
    let guide = read("docs/guide/grafana.md");
    for alert in rules.split("- alert: ").skip(1) {
        let field = |key| {
            let (_, rest) = alert.split_once(key).expect(key);
            rest.split(['\n', '}']).next().expect("a value")
        };
        let name = alert.lines().next().expect("a name");
        let row = format!(
            "| `{name}` | {} | {} |",
            field("severity: "),
            field("for: ")
        );
        assert!(guide.contains(&row), "docs/guide/grafana.md has no {row}");
        let tests: Vec<_> = failing.split(&format!("alertname: {name}\n")).collect();
        let mut tests = tests[1..].iter();
        let fires = tests.any(|test| test.trim_start().starts_with("exp_alerts:"));
        assert!(fires, "{name} fires in no test");
    }
}

#[test]
fn what_a_query_names_is_found_wherever_it_stands() {
    let query = r#"sum by (service) (rate(batchwise_a_total{part="x|y", side!="z"}[5m]))"#;
    let query = format!("{query} / on (instance) batchwise_b_bucket");
    let wanted = [
        ("batchwise_a_total", vec![("part", "x|y"), ("side", "z")]),
        ("batchwise_b_bucket", vec![]),
    ];
    assert_eq!(selectors(&query).collect::<Vec<_>>(), wanted);
    let named: Vec<_> = labels(&query, "{{side}} at {{job}}").collect();
    assert_eq!(named, ["service", "instance", "side", "job"]);
}
