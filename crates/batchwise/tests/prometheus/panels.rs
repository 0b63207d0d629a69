//! The queries of a dashboard, as Grafana would send them.

use std::fs;

use batchwise_testbed::stage::eventually;
use serde_json::Value;

use crate::packaged;
use crate::server::Prometheus;

/// A query and whose it is.
struct Query {
    of: String,
    text: String,
}

/// All of the panels, and those that offer choices.
fn queries(agent: &str) -> Vec<Query> {
    let file = packaged(&format!("grafana/batchwise-{agent}.json"));
    let text = fs::read_to_string(file).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut queries = Vec::new();
    for variable in each(&dashboard["templating"]["list"]) {
        if let Some(definition) = variable["definition"].as_str() {
            let inner = definition.strip_prefix("label_values(");
            let inner = inner.and_then(|rest| rest.strip_suffix(')'));
            let (series, label) = inner.and_then(|i| i.rsplit_once(", ")).expect("two");
            queries.push(Query {
                of: format!("choice of {}", word(&variable["name"])),
                // of series that have the label
                text: chosen(&format!(
                    "count by ({label}) ({series}) and on ({label}) {series}"
                )),
            });
        }
    }
    for panel in each(&dashboard["panels"]) {
        for target in each(&panel["targets"]) {
            queries.push(Query {
                of: format!("{} {}", word(&panel["title"]), word(&target["refId"])),
                text: chosen(&word(&target["expr"])),
            });
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
    ];
    let replace = |query: String, (name, value): (&str, &str)| query.replace(name, value);
    replaced.into_iter().fold(query.to_owned(), replace)
}

/// Waits until every query of the agent's dashboard gives series; prints how many.
pub fn until_all_answer(prometheus: &Prometheus, agent: &str) {
    let queries = queries(agent);
    assert!(!queries.is_empty(), "{agent} has no panels");
    let ask = || -> Vec<Vec<Value>> {
        let ask = |query: &Query| {
            let answer = prometheus.query(&query.text);
            answer.unwrap_or_else(|error| panic!("{} of {agent}: {error:#}", query.of))
        };
        queries.iter().map(ask).collect()
    };
    let answers = eventually(
        &format!("all queries of the dashboard of {agent}"),
        || Some(ask()).filter(|answers| !answers.iter().any(Vec::is_empty)),
        || {
            let answers = ask();
            let all = queries.iter().zip(&answers);
            let silent = all.filter(|(_, answer)| answer.is_empty());
            let silent: Vec<_> = silent.map(|(query, _)| &query.of).collect();
            format!("nothing comes of {silent:?}")
        },
    );
    println!("{agent:40} series  one of them");
    for (query, answer) in queries.iter().zip(&answers) {
        let value = answer[0]["value"][1].as_str().unwrap_or_default();
        println!("  {:38} {:6}  {value}", query.of, answer.len());
    }
}
