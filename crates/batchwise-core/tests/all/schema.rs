//! The lines that are printed describe themselves: each field has a type and says what it is.

use batchwise_core::{balance, passive, sense, tune};
use serde_json::Value;

/// All fields below `value`, by name, with their schemas.
fn fields<'a>(value: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        found.extend(
            properties
                .iter()
                .map(|(name, field)| (name.as_str(), field)),
        );
    }
    match value {
        Value::Object(object) => object.values().for_each(|v| fields(v, found)),
        Value::Array(array) => array.iter().for_each(|v| fields(v, found)),
        _ => {}
    }
}

fn may_be_null(field: &Value) -> bool {
    let text = field.to_string();
    field
        .get("type")
        .is_some_and(|t| t.to_string().contains("null"))
        || text.contains(r#"{"type":"null"}"#)
}

fn check(line: schemars::Schema, expected: &[&str]) {
    let line = line.to_value();
    let mut all = Vec::new();
    fields(&line, &mut all);
    for name in expected {
        assert!(
            all.iter().any(|(n, _)| n == name),
            "{name} is missing: {line:#}"
        );
    }
    for (name, field) in all {
        // the tag of an enum
        if name == "kind" {
            continue;
        }
        let said = field["description"].as_str().unwrap_or_default();
        assert!(!said.is_empty(), "{name} says nothing");
        if name.ends_with("_ns") {
            assert!(said.contains("ns"), "{name} has no unit: {said}");
        }
        // what is left out rather than null says so, too
        if may_be_null(field) {
            assert!(
                said.contains("null") || said.contains("only"),
                "{name} may be null: {said}"
            );
        }
    }
}

#[test]
fn the_line_of_watch_describes_itself() {
    let line = schemars::schema_for!(sense::report::Line);
    check(
        line,
        &[
            "ts_ns",
            "view",
            "confidence",
            "latency_ns",
            "turnaround",
            "ackdelay_remote",
        ],
    );
}

#[test]
fn the_line_of_tune_describes_itself() {
    let line = schemars::schema_for!(tune::report::Decision);
    check(line, &["app_setting", "capacity_per_s", "budget_left_ns"]);
}

#[test]
fn the_lines_of_passive_describe_themselves() {
    let line = schemars::schema_for!(passive::report::Line);
    check(
        line,
        &["server", "p99", "ibg_ns", "modes", "flows_capacity"],
    );
}

#[test]
fn the_lines_of_balance_describe_themselves() {
    let line = schemars::schema_for!(balance::report::Line);
    check(
        line,
        &[
            "health_why",
            "p99",
            "moved_slots",
            "detail",
            "flows_settled",
        ],
    );
}
