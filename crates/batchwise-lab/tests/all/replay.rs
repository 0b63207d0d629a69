//! Results that older versions recorded, through the summaries of today: every field that was there
//! is there, of the same type, and has the same value, unless it now takes more pairs to decide.

use std::fs;
use std::path::Path;

use batchwise_lab::summarise;
use serde_json::Value;

/// All of them. (Of `redis-nagle` there is no recording: it was interrupted before it had written
/// anything.)
fn names() -> impl Iterator<Item = &'static str> {
    let all = batchwise_lab::experiments().iter().map(|e| e.name());
    all.filter(|name| *name != "redis-nagle")
}

/// Of these the intervals are drawn anew, and what has too few pairs is no longer a number.
const WITH_INTERVALS: &[&str] = &[
    "balance-cost",
    "balance-faults",
    "balance-tail",
    "demo",
    "overhead",
    "passive-cost",
    "tune-cost",
];

/// Their reports have tables and no figure, or what was recorded has nothing that a figure needs.
const WITHOUT_FIGURE: &[&str] = &[
    "balance-cost",
    "balance-faults",
    "burst-abuse",
    "burst-jumbo",
    "burst-mixed",
    "burst-tc-cost",
    "drills",
    "fleet",
    "passive-accuracy",
    "passive-transports",
    "window-cost",
    "window-lives",
];

/// What decisions had under another name, and did not have yet: no figure shows it.
fn complete_decision(decision: &mut Value) {
    decision["app_setting"] = decision["wish"].take();
    let lacking = serde_json::json!({
        "policy": "slo:500us", "message_bytes": 0.0, "arms": {}, "pairs": 0, "budget_left_ns": 0.0,
        "dry_run": false,
    });
    for (name, value) in lacking.as_object().into_iter().flatten() {
        decision[name] = value.clone();
    }
}

/// Moves to the points, or beside them, what older versions wrote into the summary only.
fn complete(result: &mut Value) {
    let summary = result["summary"].clone();
    let name = result["experiment"].as_str().unwrap_or_default().to_owned();
    for point in result["points"].as_array_mut().into_iter().flatten() {
        let arm = point["arm"].as_str().unwrap_or_default().to_owned();
        match name.as_str() {
            "passive-accuracy" if arm == "steps" => {
                point["followed"] = summary["epochs_to_follow_each"].clone();
            }
            "passive-transports" if !summary["oracle"][&arm].is_null() => {
                point["baselines"]["oracle"] = summary["oracle"][&arm].clone();
            }
            "shift" => {
                let decisions = point["decisions"].as_array_mut();
                decisions.into_iter().flatten().for_each(complete_decision);
            }
            _ => {}
        }
    }
    if name == "demo" {
        // those points have no slices, which intervals come from: nothing is decided
        for cutoff in ["measured_cutoff", "estimated_cutoff"] {
            result["summary"][cutoff] = serde_json::json!({"nagle_better": "unknown"});
        }
    }
    if name == "passive-robustness" {
        result["saturation_rps"] = summary["saturation_rps"].clone();
    }
}

/// Makes all points valid: which of them count is not asked here.
fn trust(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "valid" => *value = true.into(),
                    "why_invalid" => *value = Value::Array(Vec::new()),
                    _ => trust(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(trust),
        _ => {}
    }
}

/// What is there in `old` and not, or of another type, in `new`. What is not known has any type.
fn lost(path: &str, exact: bool, old: &Value, new: &Value, into: &mut Vec<String>) {
    let differ = |a: f64, b: f64| exact && (a - b).abs() > 1e-9 * a.abs().max(b.abs());
    match (old, new) {
        // counted by the engine, from points that are missing
        _ if path.ends_with("load_invalid") => {}
        (Value::Number(a), Value::Number(b)) => {
            if a.as_f64()
                .zip(b.as_f64())
                .is_some_and(|(a, b)| differ(a, b))
            {
                into.push(format!("{path} was {a}, is {b}"));
            }
        }
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let path = format!("{path}.{name}");
                match new.get(name) {
                    Some(found) => lost(&path, exact, value, found, into),
                    None => into.push(format!("{path} is not there")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if exact => {
            if old.len() != new.len() {
                into.push(format!(
                    "{path} had {} entries, has {}",
                    old.len(),
                    new.len()
                ));
            }
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                lost(&format!("{path}[{index}]"), exact, old, new, into);
            }
        }
        (Value::String(_) | Value::Bool(_), Value::String(_) | Value::Bool(_)) if exact => {
            if old != new {
                into.push(format!("{path} was {old}, is {new}"));
            }
        }
        (Value::Null, _) => {}
        (_, Value::Null) if !exact => {}
        (old, new) if std::mem::discriminant(old) == std::mem::discriminant(new) => {}
        (old, new) => into.push(format!("{path} was {old}, is {new}")),
    }
}

fn recorded(name: &str) -> Value {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let path = dir.join(format!("{name}.json"));
    let text = fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn no_field_of_a_recorded_summary_is_lost() {
    for name in names() {
        let mut result = recorded(name);
        trust(&mut result["points"]);
        complete(&mut result);
        let new = summarise(name, &result).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let exact = !WITH_INTERVALS.contains(&name);
        let mut found = Vec::new();
        lost(name, exact, &result["summary"], &new, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn a_report_is_drawn_again_from_recorded_results() {
    let dir = std::env::temp_dir().join(format!("bw-replay-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let error = batchwise_lab::report(&dir).unwrap_err().to_string();
    assert!(error.contains("has no result.json"), "{error}");
    let mut without = Vec::new();
    for name in names() {
        let mut result = recorded(name);
        complete(&mut result);
        fs::write(dir.join("result.json"), result.to_string()).unwrap();
        let drawn = batchwise_lab::report(&dir);
        drawn.unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let page = fs::read_to_string(dir.join("report.html")).unwrap();
        assert!(page.contains("<table"), "{name}");
        if !page.contains("<svg") {
            without.push(name);
        }
    }
    without.sort_unstable();
    assert_eq!(without, WITHOUT_FIGURE);
    fs::remove_dir_all(&dir).unwrap();
}
