//! Tables of metrics: names, types and meanings from the families, labels from an example that has
//! samples of each.

use crate::frame::metrics::testing::{Example, labels, served};
use crate::frame::metrics::{Family, HEARTBEAT, Labels};

const HEAD: &str = "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";

/// Labels that tell things apart which the user has named, or whose words are those of the lines.
const OPEN: [&str; 11] = [
    "service",
    "side",
    "server",
    "connection",
    "backend",
    "interface",
    "transport",
    "unit",
    "estimator",
    "vantage",
    "policy",
];

/// All that a subcommand serves; what it serves before it has seen anything is well-formed, too.
pub fn table<M: Example>() -> String {
    served(M::default());
    served(M::example());
    let example = M::example();
    let rows = M::FAMILIES.iter().map(|family| row(family, &example));
    HEAD.to_owned() + &rows.collect::<String>()
}

/// What every agent serves.
pub fn heartbeat() -> String {
    HEAD.to_owned() + &row(&HEARTBEAT, &Some(0))
}

fn row<M>(family: &Family<M>, state: &M) -> String {
    let kind = family.kind();
    let unit = if family.in_seconds { "seconds" } else { "" };
    let mut name = format!("batchwise_{}", family.name);
    if !unit.is_empty() {
        name = format!("{name}_{unit}");
    }
    if kind.as_str() == "counter" {
        name += "_total";
    }
    let samples = labels(family, state);
    assert!(!samples.is_empty(), "the example has no sample of {name}");
    format!(
        "| `{name}` | {} | {unit} | {} | {} |\n",
        kind.as_str(),
        names(&samples),
        family.help
    )
}

/// The names of labels, with their values where these are few and fixed.
fn names(samples: &[Labels]) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (key, value) in samples.iter().flatten() {
        let at = all.iter().position(|(name, _)| name == key);
        let at = at.unwrap_or_else(|| {
            all.push((key, Vec::new()));
            all.len() - 1
        });
        if !OPEN.contains(key) && !all[at].1.contains(&value.as_str()) {
            all[at].1.push(value);
        }
    }
    let name = |(name, values): &(&str, Vec<&str>)| match values.as_slice() {
        [] => format!("`{name}`"),
        values => {
            let values: Vec<String> = values.iter().map(|v| format!("`{v}`")).collect();
            format!("`{name}` ({})", values.join(", "))
        }
    };
    all.iter().map(name).collect::<Vec<_>>().join(", ")
}
