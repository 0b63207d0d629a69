//! What agents export: names, types and meanings from the families, labels from an example that has
//! samples of each.

use crate::frame::metrics::testing::{Example, labels, served};
use crate::frame::metrics::{CPU, Family, HEARTBEAT, Labels};
use prometheus_client::metrics::MetricType;

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
    "count",
    "estimator",
    "vantage",
    "policy",
];

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

/// A metric as programs see it.
pub struct Exported {
    pub name: String,
    kind: MetricType,
    unit: &'static str,
    help: &'static str,
    samples: Vec<Labels>,
}

/// All that a subcommand serves; what it serves before it has seen anything is well-formed, too.
pub fn exported<M: Example>() -> Vec<Exported> {
    served(M::default());
    served(M::example());
    let example = M::example();
    let families = M::FAMILIES.iter();
    families.map(|f| Exported::new(f, &example)).collect()
}

/// What every agent serves.
pub fn of_all() -> [Exported; 2] {
    [
        Exported::new(&HEARTBEAT, &Some(0)),
        Exported::new(&CPU, &Some(0.0)),
    ]
}

pub fn table(metrics: &[Exported]) -> String {
    HEAD.to_owned() + &metrics.iter().map(Exported::row).collect::<String>()
}

impl Exported {
    fn new<M>(family: &Family<M>, state: &M) -> Self {
        let kind = family.kind();
        let unit = if family.in_seconds { "seconds" } else { "" };
        let name = family.full_name();
        let samples = labels(family, state);
        assert!(!samples.is_empty(), "the example has no sample of {name}");
        Self {
            name,
            kind,
            unit,
            help: family.help,
            samples,
        }
    }

    fn row(&self) -> String {
        let Self {
            name, unit, help, ..
        } = self;
        let kind = self.kind.as_str();
        let labels = names(&self.samples);
        format!("| `{name}` | {kind} | {unit} | {labels} | {help} |\n")
    }

    /// Whether one of its series has this name.
    pub fn has(&self, series: &str) -> bool {
        match (self.kind.as_str(), series.strip_prefix(self.name.as_str())) {
            ("histogram", Some("_bucket" | "_sum" | "_count")) => true,
            ("histogram", _) => false,
            (_, ending) => ending == Some(""),
        }
    }

    /// Whether its series have this label, with each of these values (`a|b`; an empty one: whatever it is). Of labels
    /// without fixed words, and of variables, all may be.
    pub fn has_label(&self, label: &str, values: &str) -> bool {
        let samples = self.samples.iter().flatten();
        let all = samples.filter(|(key, _)| *key == label);
        let all: Vec<_> = all.map(|(_, value)| value.as_str()).collect();
        let any = OPEN.contains(&label) || values.is_empty() || values.contains('$');
        OF_PROMETHEUS.contains(&label)
            || !all.is_empty() && (any || values.split('|').all(|value| all.contains(&value)))
    }
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
