//! What is recorded of an output, its shape and not its values: which fields lines have, of which
//! types, and the words of those that have few. One text file for each output.
//!
//! ```text
//! [server]
//! latency_ns.mean: integer (null)
//! connection?: string
//! side: string = client server
//! ```
//!
//! `?`: not in every line. In parentheses: allowed, but nothing waits for it; so is null always.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::site::fixture;

/// Fields whose text is one of few words, which are contracts, too.
const ENUMERATED: [&str; 13] = [
    "kind",
    "side",
    "unit",
    "count",
    "estimator",
    "vantage",
    "event",
    "what",
    "state",
    "health",
    "policy",
    "nagle",
    "transport",
];
/// For how long a state may take to come.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a recording looks at what goes on.
const RECORDING: Duration = Duration::from_secs(6);

#[derive(Clone, Debug, Default, PartialEq)]
struct Field {
    /// Whether each is demanded.
    types: BTreeMap<String, bool>,
    always: bool,
    words: BTreeSet<String>,
}

type Fields = BTreeMap<String, Field>;

/// Fields by the kind of line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape(BTreeMap<String, Fields>);

/// How often each object and each of its fields was seen.
#[derive(Default)]
struct Counts {
    objects: BTreeMap<String, u64>,
    fields: BTreeMap<String, u64>,
}

impl Shape {
    /// Of these lines.
    pub fn of(lines: &[Value]) -> Self {
        let mut shape = Self::default();
        let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
        for line in lines {
            let kind = line["kind"].as_str().unwrap_or("line").to_owned();
            let counts = counts.entry(kind.clone()).or_default();
            add(shape.0.entry(kind).or_default(), counts, "", line);
        }
        for (kind, fields) in &mut shape.0 {
            for (path, field) in fields {
                let counts = &counts[kind];
                field.always = counts.fields.get(path) == counts.objects.get(parent(path));
            }
        }
        shape
    }

    fn parse(text: &str) -> Self {
        let mut shape = Self::default();
        let mut kind = String::new();
        for line in text.lines().filter(|l| !l.is_empty()) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                name.clone_into(&mut kind);
                continue;
            }
            let (path, rest) = line.split_once(": ").expect("a field and its types");
            let (types, words) = rest.split_once(" = ").unwrap_or((rest, ""));
            let types = types.split(' ').map(|t| {
                let bare = t.trim_matches(['(', ')']);
                (bare.to_owned(), bare == t)
            });
            let field = Field {
                types: types.collect(),
                always: !path.ends_with('?'),
                words: words.split_whitespace().map(str::to_owned).collect(),
            };
            let fields = shape.0.entry(kind.clone()).or_default();
            fields.insert(path.trim_end_matches('?').to_owned(), field);
        }
        shape
    }

    /// What `self`, which is recorded, demands and `seen` lacks, or has of another type.
    fn misses(&self, seen: &Self) -> Vec<String> {
        let mut misses = Vec::new();
        let none = Fields::new();
        for (kind, fields) in &self.0 {
            let there = seen.0.get(kind).unwrap_or(&none);
            for (path, field) in fields {
                let demanded = field.types.iter().filter(|(_, demanded)| **demanded);
                let Some(found) = there.get(path) else {
                    let above = match parent(path) {
                        "" => !there.is_empty(),
                        parent => there
                            .get(parent)
                            .is_some_and(|p| p.types.contains_key("object")),
                    };
                    if demanded.count() > 0 || field.always && above {
                        misses.push(format!("[{kind}] {path} is not there"));
                    }
                    continue;
                };
                for (lacking, _) in demanded.filter(|(t, _)| !found.types.contains_key(*t)) {
                    misses.push(format!("[{kind}] {path} is never {lacking}"));
                }
                for other in found.types.keys().filter(|t| !field.types.contains_key(*t)) {
                    misses.push(format!("[{kind}] {path} is {other}"));
                }
                if field.always && !found.always {
                    misses.push(format!("[{kind}] {path} is not always there"));
                }
                for word in field.words.difference(&found.words) {
                    misses.push(format!("[{kind}] {path} is never {word:?}"));
                }
            }
        }
        misses
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, fields) in &self.0 {
            writeln!(f, "[{kind}]")?;
            for (path, field) in fields {
                write!(f, "{path}{}:", if field.always { "" } else { "?" })?;
                for (name, demanded) in &field.types {
                    match demanded {
                        true => write!(f, " {name}")?,
                        false => write!(f, " ({name})")?,
                    }
                }
                if !field.words.is_empty() {
                    write!(f, " =")?;
                    field.words.iter().try_for_each(|w| write!(f, " {w}"))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn parent(path: &str) -> &str {
    path.strip_suffix("[]")
        .unwrap_or_else(|| path.rsplit_once('.').map_or("", |(parent, _)| parent))
}

fn add(fields: &mut Fields, counts: &mut Counts, path: &str, value: &Value) {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !path.is_empty() {
        let field = fields.entry(path.to_owned()).or_default();
        field.types.insert(name.to_owned(), name != "null");
        *counts.fields.entry(path.to_owned()).or_default() += 1;
        let key = path.rsplit('.').next().unwrap_or_default();
        if let Some(word) = value.as_str().filter(|w| is_word(w))
            && ENUMERATED.contains(&key)
        {
            field.words.insert(word.to_owned());
        }
    }
    match value {
        Value::Object(object) => {
            *counts.objects.entry(path.to_owned()).or_default() += 1;
            for (key, value) in object {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                add(fields, counts, &path, value);
            }
        }
        Value::Array(items) => {
            for item in items {
                add(fields, counts, &format!("{path}[]"), item);
            }
        }
        _ => (),
    }
}

/// Whether this is one of a few words rather than what somebody chose.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// What is recorded as `name`. With BATCHWISE_RECORD, what is `seen` is recorded where nothing is yet.
fn recorded(name: &str, seen: impl FnOnce() -> String) -> String {
    let file = fixture(&format!("{name}.txt"));
    if !file.exists() && std::env::var_os("BATCHWISE_RECORD").is_some() {
        std::thread::sleep(RECORDING);
        fs::write(&file, seen()).expect("it is recorded");
    }
    fs::read_to_string(&file).unwrap_or_else(|_| panic!("nothing is recorded as {name}"))
}

/// Looks until nothing is missed.
fn until_nothing_is_missed(name: &str, mut misses: impl FnMut() -> Vec<String>) {
    let end = Instant::now() + PATIENCE;
    loop {
        let missed = misses();
        if missed.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{name}: {missed:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the lines have the recorded shape.
pub fn hold(name: &str, mut lines: impl FnMut() -> Vec<Value>) {
    let demanded = Shape::parse(&recorded(name, || Shape::of(&lines()).to_string()));
    until_nothing_is_missed(name, || demanded.misses(&Shape::of(&lines())));
}

/// The lines have the recorded shape: no more will come.
pub fn hold_now(name: &str, lines: &[Value]) {
    hold(name, || lines.to_vec());
}

/// Waits until all of the recorded entries, a line each, are there.
pub fn hold_all(name: &str, mut entries: impl FnMut() -> BTreeSet<String>) {
    let demanded = recorded(name, || entries().into_iter().map(|e| e + "\n").collect());
    until_nothing_is_missed(name, || {
        let there = entries();
        let lacking = demanded.lines().filter(|entry| !there.contains(*entry));
        lacking
            .map(|entry| format!("{entry} is not there"))
            .collect()
    });
}

/// The entries of something that does not change while one looks.
pub fn hold_all_now(name: &str, entries: &BTreeSet<String>) {
    hold_all(name, || entries.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(lines: &[Value]) -> Shape {
        Shape::of(lines)
    }

    #[test]
    fn a_shape_is_read_as_it_was_written() {
        let lines = [
            json!({"kind": "a", "n": 1, "x": 0.5, "side": "server", "of": [{"k": null}]}),
            json!({"kind": "a", "n": null, "side": "client", "of": [{"k": 1, "m": true}]}),
        ];
        let seen = shape(&lines);
        assert_eq!(Shape::parse(&seen.to_string()), seen, "{seen}");
    }

    #[test]
    fn more_is_allowed_and_less_is_not() {
        let before = shape(&[json!({"n": 1, "in": {"s": "x"}})]);
        let grown = shape(&[json!({"n": 2, "in": {"s": "y", "t": 1}, "new": []})]);
        assert_eq!(before.misses(&grown), [""; 0]);
        for lines in [
            vec![json!({"in": {"s": "x"}})],
            vec![json!({"n": 1, "in": {}})],
            vec![json!({"n": 1.5, "in": {"s": "x"}})],
            vec![json!({"n": null, "in": {"s": "x"}})],
            vec![json!({"n": 1, "in": {"s": "x"}}), json!({"n": 1, "in": {}})],
            vec![
                json!({"n": 1, "in": {"s": "x"}}),
                json!({"n": "1", "in": {"s": "x"}}),
            ],
        ] {
            assert_ne!(before.misses(&shape(&lines)), [""; 0], "{lines:?}");
        }
    }
}
