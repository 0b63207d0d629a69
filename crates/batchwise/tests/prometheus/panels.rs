//! The queries of a dashboard, as Grafana would send them.

use std::fs;

use batchwise_testbed::stage::eventually;
use serde_json::Value;

use crate::packaged;
use crate::server::Prometheus;

/// All queries of panels, and of what choices are offered from, each with whose it is.
fn queries(agent: &str) -> Vec<(String, String)> {
    let file = packaged(&format!("grafana/batchwise-{agent}.json"));
    let text = fs::read_to_string(file).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut queries = Vec::new();
    for choice in each(&dashboard["templating"]["list"]) {
        let query = word(&choice["query"]);
        if let Some(inner) = query.strip_prefix("label_values(") {
            let inner = inner.trim_end_matches(')').rsplit_once(", ");
            let (series, label) = inner.expect("a series and a label");
            // of series that have the label
            let query = format!("count by ({label}) ({series}) and on ({label}) {series}");
            queries.push((format!("choice of {label}"), chosen(&query)));
        }
    }
    for panel in each(&dashboard["panels"]) {
        for target in each(&panel["targets"]) {
            let of = format!("{} {}", word(&panel["title"]), word(&target["refId"]));
            queries.push((of, chosen(&word(&target["expr"]))));
        }
    }
    queries
}

/// The query with everything chosen.
fn chosen(query: &str) -> String {
    let replaced = [
        ("$__rate_interval", "10s"),
        ("$__range", "1m"),
        ("$instance", ".+"),
        ("$service", ".+"),
        ("$server", ".+"),
        ("$unit", "sends"),
        ("$side", "server"),
        ("$process", ".+"),
    ];
    let replace = |query: String, (name, value): (&str, &str)| query.replace(name, value);
    replaced.into_iter().fold(query.to_owned(), replace)
}

/// The series that a query gives now.
fn ask(prometheus: &Prometheus, agent: &str, (of, query): &(String, String)) -> Vec<Value> {
    let answer = prometheus.query(query);
    answer.unwrap_or_else(|error| panic!("{of} of {agent}: {error:#}"))
}

/// Panics where Prometheus does not take a query of a dashboard.
pub fn assert_all_taken(prometheus: &Prometheus) {
    for file in fs::read_dir(packaged("grafana")).expect("the dashboards") {
        let name = file.expect("a file").file_name();
        let name = name
            .to_str()
            .and_then(|name| name.strip_prefix("batchwise-"));
        if let Some(agent) = name.and_then(|name| name.strip_suffix(".json")) {
            queries(agent)
                .iter()
                .for_each(|query| drop(ask(prometheus, agent, query)));
        }
    }
}

/// Waits until every query of the agent's dashboard gives series, but what is said only where something is wrong;
/// prints how many.
pub fn until_all_answer(prometheus: &Prometheus, agent: &str) {
    let mut queries = queries(agent);
    queries.retain(|(_, query)| !query.contains("_advice"));
    assert!(!queries.is_empty(), "{agent} has no panels");
    let ask_all = || -> Vec<Vec<Value>> {
        let answers = queries.iter().map(|query| ask(prometheus, agent, query));
        answers.collect()
    };
    let answers = eventually(
        &format!("all queries of the dashboard of {agent}"),
        || Some(ask_all()).filter(|answers| !answers.iter().any(Vec::is_empty)),
        || {
            let answers = ask_all();
            let all = queries.iter().zip(&answers);
            let silent = all.filter(|(_, answer)| answer.is_empty());
            let silent: Vec<_> = silent.map(|((of, _), _)| of).collect();
            format!("nothing comes of {silent:?}")
        },
    );
    println!("{agent:40} series  one of them");
    for ((of, _), answer) in queries.iter().zip(&answers) {
        let value = answer[0]["value"][1].as_str().unwrap_or_default();
        println!("  {of:38} {:6}  {value}", answer.len());
    }
}
