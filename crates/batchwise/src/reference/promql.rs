//! Reads queries of Prometheus and finds names in them that nobody serves.

use std::collections::BTreeSet;

use promql_parser::label::MatchOp;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};

use super::metrics::Exported;

/// What Prometheus makes of each target by itself.
const OF_TARGETS: [&str; 4] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "ALERTS",
];
/// Labels that Prometheus adds.
const ADDED: [&str; 3] = ["instance", "job", "le"];

/// What queries may name.
pub struct Vocabulary<'a> {
    pub metrics: Vec<&'a Exported>,
    /// Names and labels of series that rules record.
    pub recorded: &'a [(&'a str, &'a [&'a str])],
}

impl Vocabulary<'_> {
    /// The metrics that a query uses; panics where it is malformed, or has a name, a label or a
    /// label's fixed word that does not exist.
    pub fn check(&self, query: &str) -> BTreeSet<String> {
        let tree = parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut names = Names::default();
        walk_expr(&mut names, &tree).expect("no error is made");
        for selector in &names.selectors {
            self.check_selector(selector, query);
        }
        for label in &names.labels {
            let mut of_query = names.selectors.iter().map(|s| s.name.as_deref());
            let made = names.made.contains(label);
            let known = of_query.any(|name| self.has_label(name.unwrap_or_default(), label));
            assert!(
                known || made,
                "{query}: nothing in it has the label {label}"
            );
        }
        let selected = names.selectors.iter();
        let exported = selected.filter_map(|s| self.metric(s.name.as_deref()?));
        exported.map(|metric| metric.name.clone()).collect()
    }

    fn check_selector(&self, selector: &VectorSelector, query: &str) {
        let name = selector.name.as_deref().expect("a name outside of braces");
        let known = self.metric(name).is_some()
            || OF_TARGETS.contains(&name)
            || self.recorded.iter().any(|(recorded, _)| *recorded == name);
        assert!(known, "{query}: nobody serves {name}");
        for matcher in &selector.matchers.matchers {
            let (label, value) = (matcher.name.as_str(), matcher.value.as_str());
            assert!(
                self.has_label(name, label),
                "{query}: {name} has no label {label}"
            );
            let Some(metric) = self.metric(name) else {
                continue;
            };
            let there = match &matcher.op {
                MatchOp::Equal => metric.has_value(label, |word| word == value),
                MatchOp::Re(words) => metric.has_value(label, |word| words.is_match(word)),
                MatchOp::NotEqual | MatchOp::NotRe(_) => true,
            };
            let added = ADDED.contains(&label);
            assert!(
                there || added,
                "{query}: {label} of {name} is never {value}"
            );
        }
    }

    fn has_label(&self, name: &str, label: &str) -> bool {
        let recorded = self.recorded.iter().find(|(recorded, _)| *recorded == name);
        ADDED.contains(&label)
            || name == "ALERTS"
            || self.metric(name).is_some_and(|m| m.has_label(label))
            || recorded.is_some_and(|(_, labels)| labels.contains(&label))
    }

    /// The metric that has samples of this name.
    fn metric(&self, name: &str) -> Option<&Exported> {
        let mut metrics = self.metrics.iter();
        let found = metrics.find(|metric| {
            let ending = name.strip_prefix(metric.name.as_str());
            ending.is_some_and(|ending| metric.has_ending(ending))
        });
        found.copied()
    }

    /// Panics where a legend has a label that nothing in the query has.
    pub fn check_legend(&self, legend: &str, query: &str) {
        let mut names = Names::default();
        walk_expr(&mut names, &parse(query).expect("a query")).expect("no error is made");
        for rest in legend.split("{{").skip(1) {
            let (label, _) = rest.split_once("}}").expect("braces in pairs");
            let mut selected = names.selectors.iter().filter_map(|s| s.name.as_deref());
            let known = selected.any(|name| self.has_label(name, label));
            assert!(known, "{legend}: nothing in {query} has the label {label}");
        }
    }
}

/// What a query selects, and the labels that it groups and matches by.
#[derive(Default)]
struct Names {
    selectors: Vec<VectorSelector>,
    labels: BTreeSet<String>,
    /// Labels that `label_replace` adds.
    made: BTreeSet<String>,
}

impl ExprVisitor for Names {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        let mut labels = |modifier: Option<&LabelModifier>| {
            let labels = modifier.map(|m| m.labels().labels.clone());
            self.labels.extend(labels.unwrap_or_default());
        };
        match expr {
            Expr::VectorSelector(selector) => self.selectors.push(selector.clone()),
            Expr::MatrixSelector(matrix) => self.selectors.push(matrix.vs.clone()),
            Expr::Aggregate(aggregate) => labels(aggregate.modifier.as_ref()),
            Expr::Binary(binary) => {
                labels(binary.modifier.as_ref().and_then(|m| m.matching.as_ref()));
            }
            Expr::Call(call) if call.func.name == "label_replace" => {
                if let Some(Expr::StringLiteral(label)) = call.args.args.get(1).map(|a| &**a) {
                    self.made.insert(label.val.clone());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

#[test]
fn a_name_that_does_not_exist_is_found_wherever_it_stands() {
    let all = super::exported();
    let words = Vocabulary {
        metrics: all.iter().flat_map(|(_, metrics)| metrics).collect(),
        recorded: &[("batchwise:recorded", &["service"])],
    };
    for right in [
        r#"batchwise_latency_seconds{part="total", instance=~"$instance"}"#,
        "sum by (service, le) (rate(batchwise_interval_latency_seconds_bucket[1m]))",
        "sum by (service) (rate(batchwise_request_duration_seconds[1m]))",
        r#"batchwise_balance_share_ratio and on (service) batchwise:recorded{service!=""}"#,
    ] {
        words.check(right);
    }
    for wrong in [
        "batchwise_latency",
        "batchwise_latency_seconds_bucket",
        "rate(batchwise_interval_latency_seconds[1m])",
        "batchwise:unrecorded",
        r#"batchwise_latency_seconds{parts="total"}"#,
        r#"batchwise_latency_seconds{part="all"}"#,
        "sum by (backend) (batchwise_latency_seconds)",
        r#"sum by (server) (label_replace(batchwise_connections, "host", "$1", "service", "(.+):.*"))"#,
        "batchwise_balance_weight * on (server) batchwise_balance_share_ratio",
        "batchwise_latency_seconds{",
    ] {
        let found = std::panic::catch_unwind(|| words.check(wrong));
        assert!(found.is_err(), "{wrong} passes");
    }
}
