//! From the JSON schema of a line to a table of its fields. Doc comments say when a field is null
//! ("null: not known.") or left out ("Absent: without `--hold aimd`."): that has a column of its own.

use std::collections::HashMap;

use serde_json::Value;

const HEAD: &str = "| field | type | unit | null or absent | meaning |\n|---|---|---|---|---|\n";

/// A table for each kind of line.
pub fn tables(schema: &Value) -> String {
    let mut words = HashMap::new();
    let kinds = schema.get("oneOf").and_then(Value::as_array);
    let Some(kinds) = kinds else {
        return table(schema, schema, &mut words);
    };
    let section = |line: &Value| {
        let kind = line["properties"]["kind"]["const"].as_str();
        let kind = kind.expect("lines are told apart by their kind");
        let said = line["description"]
            .as_str()
            .expect("each kind is described");
        let table = table(schema, line, &mut words);
        format!("`kind` `{kind}`: {said}\n\n{table}")
    };
    kinds.iter().map(section).collect::<Vec<_>>().join("\n")
}

fn table(root: &Value, line: &Value, words: &mut HashMap<String, String>) -> String {
    let mut fields = Fields {
        root,
        rows: Vec::new(),
        expanded: HashMap::new(),
        words,
    };
    fields.object("", line);
    HEAD.to_owned() + &fields.rows.concat()
}

struct Fields<'a> {
    root: &'a Value,
    rows: Vec<String>,
    /// Where the fields of a type that is used twice are.
    expanded: HashMap<String, String>,
    /// Where the words of an enum are, also in the tables before.
    words: &'a mut HashMap<String, String>,
}

impl<'a> Fields<'a> {
    /// The fields of an object, and of what is flattened into it.
    fn object(&mut self, prefix: &str, object: &'a Value) {
        let required: Vec<&str> = match object["required"].as_array() {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        // in the order of the type, which `required` has kept; what may be left out comes last
        let place = |name: &str| required.iter().position(|r| *r == name);
        let properties = object["properties"].as_object().into_iter().flatten();
        let mut properties: Vec<(&String, &Value)> = properties.collect();
        properties.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        for (name, field) in properties {
            // the tag of a kind is in the heading
            if field.get("const").is_some() && field.get("description").is_none() {
                continue;
            }
            let path = format!("{prefix}{name}");
            self.field(&path, field, place(name).is_some());
        }
        if let Some(name) = reference(object) {
            self.object(prefix, &self.root["$defs"][name]);
        }
        if object["additionalProperties"].is_object() {
            let outcomes = "packets with this [outcome](../research/balance.md#the-data-path)";
            let row = format!("| *each outcome* | integer | | | How many {outcomes}. |\n");
            self.rows.push(row);
        }
    }

    fn field(&mut self, path: &str, field: &'a Value, required: bool) {
        let said = field["description"].as_str().unwrap_or_default();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!said.is_empty(), "{path} says nothing");
        let (mut meaning, mut null) = (said.clone(), String::new());
        for (word, column) in [("null: ", ""), ("Absent: ", "absent: ")] {
            let at = meaning.clone();
            if let Some((before, when)) = at.split_once(word) {
                null = format!("{column}{}", when.trim_end_matches('.'));
                meaning = before.trim_end().to_owned();
            }
        }
        let (kind, inner, nullable) = self.kind(field);
        assert_eq!(
            nullable || !required,
            !null.is_empty(),
            "{path} has to say when it is null or absent, and only then: {said}"
        );
        // the unit has a column of its own
        let unit = unit(path);
        meaning = meaning.replace(&format!(", {unit}."), ".");
        let words = self.words(field);
        match inner.and_then(|name| self.words.get(name)) {
            _ if words.is_empty() => {}
            Some(before) if before == path => meaning += " The words are those above.",
            Some(before) => meaning += &format!(" The words are those of `{before}`."),
            None => {
                let known = inner.map(|name| (name.to_owned(), path.to_owned()));
                self.words.extend(known);
                let word = |(word, said): &(String, String)| format!("`{word}`: {}", lower(said));
                let words: Vec<_> = words.iter().map(word).collect();
                meaning += &format!(" {}.", words.join("; "));
            }
        }
        let array = if kind.starts_with("array") { "[]" } else { "" };
        let known = inner.and_then(|name| self.expanded.get(name).cloned());
        if let Some(first) = &known {
            meaning += &format!(" Its fields are those of `{first}`.");
        }
        let cell = |text: &str| text.replace('|', "\\|");
        self.rows.push(format!(
            "| `{path}` | {kind} | {unit} | {} | {} |\n",
            cell(&null),
            cell(&meaning)
        ));
        if let Some(name) = inner
            && known.is_none()
            && self.root["$defs"][name]["properties"].is_object()
        {
            self.expanded.insert(name.to_owned(), path.to_owned());
            let object = &self.root["$defs"][name];
            self.object(&format!("{path}{array}."), object);
        }
    }

    /// The type's name, the definition that has its fields, and whether it may be null.
    fn kind(&self, field: &'a Value) -> (String, Option<&'a str>, bool) {
        if let Some([some, null]) = field["anyOf"].as_array().map(Vec::as_slice)
            && null["type"] == "null"
        {
            let (kind, inner, _) = self.kind(some);
            return (kind, inner, true);
        }
        if let Some(name) = reference(field) {
            let (kind, ..) = self.kind(&self.root["$defs"][name]);
            return (kind, Some(name), false);
        }
        let types: Vec<&str> = match &field["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            // an enum of words
            _ => vec!["string"],
        };
        let nullable = types.contains(&"null");
        match types.iter().find(|t| **t != "null") {
            Some(&"array") => {
                let (kind, inner, _) = self.kind(&field["items"]);
                (format!("array of {kind}s"), inner, nullable)
            }
            kind => ((*kind.unwrap_or(&"null")).to_owned(), None, nullable),
        }
    }

    /// The words that a field may hold, and what they mean.
    fn words(&self, field: &'a Value) -> Vec<(String, String)> {
        if let Some(name) = reference(field) {
            return self.words(&self.root["$defs"][name]);
        }
        if let Some(word) = field["const"].as_str() {
            let said = field["description"].as_str().unwrap_or_default();
            return vec![(word.to_owned(), said.to_owned())];
        }
        let either = ["oneOf", "anyOf"].map(|key| field[key].as_array());
        let either = either.into_iter().flatten().flatten();
        either.flat_map(|one| self.words(one)).collect()
    }
}

fn reference(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// The unit that a name states.
fn unit(path: &str) -> &'static str {
    let names: Vec<&str> = path.split('.').collect();
    let last = names.last().expect("a name");
    if names.iter().any(|name| name.ends_with("_ns")) {
        "ns"
    } else if last.ends_with("_per_s") {
        "1/s"
    } else if last.ends_with("bytes") {
        "bytes"
    } else {
        ""
    }
}

/// A sentence as part of another.
fn lower(said: &str) -> String {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = said.trim_end_matches('.');
    let mut rest = said.chars();
    match (rest.next(), rest.clone().next()) {
        // not the first letter of an acronym or a name
        (Some(first), Some(second)) if !second.is_uppercase() && !said.starts_with("Nagle") => {
            first.to_lowercase().chain(rest).collect()
        }
        _ => said.to_owned(),
    }
}
