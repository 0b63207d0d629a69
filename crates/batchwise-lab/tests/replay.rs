//! Results that the older program recorded, through the summaries of today: every field is there and
//! of the same type, and has the same value, unless it now takes more pairs to decide.

use batchwise_lab::engine::summarise;
use serde_json::Value;

const PORTED: &[&str] = &[
    "balance-cost",
    "balance-faults",
    "balance-policies",
    "balance-tail",
];
/// Their summaries have no intervals, and are equal in value.
const EXACT: &[&str] = &["balance-policies"];

/// What is there in `old`, and is missing or of another kind in `new`. null is any type's "not known".
fn lost(path: &str, exact: bool, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                match new.get(name) {
                    Some(now) => lost(&format!("{path}.{name}"), exact, value, now, found),
                    None => found.push(format!("{path}.{name} is missing")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if exact && old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                lost(&format!("{path}[{index}]"), exact, old, new, found);
            }
        }
        (Value::Number(a), Value::Number(b)) if !exact || a == b => {}
        (Value::Number(a), Value::Number(b)) => {
            let [a, b] = [a, b].map(|n| n.as_f64().unwrap());
            if (a - b).abs() > 1e-9 * a.abs().max(b.abs()) {
                found.push(format!("{path} was {a}, is {b}"));
            }
        }
        (Value::Null, _) | (_, Value::Null) if !exact => {}
        (old, new) if exact && old != new => found.push(format!("{path} was {old}, is {new}")),
        (old, new) if std::mem::discriminant(old) == std::mem::discriminant(new) => {}
        (old, new) => found.push(format!("{path} was {old}, is {new}")),
    }
}

#[test]
fn no_field_of_a_recorded_summary_is_lost() {
    for name in PORTED {
        let path = format!("{}/tests/recorded/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let new = summarise(name, &recorded).unwrap();
        let exact = EXACT.contains(name) && recorded["cut"].is_null();
        let mut found = Vec::new();
        lost(name, exact, &recorded["summary"], &new, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}
