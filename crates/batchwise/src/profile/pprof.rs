//! The format of pprof (github.com/google/pprof, `proto/profile.proto`): gzipped protobuf.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use prost::Message;

use super::frames::Graph;
use crate::frame::human::word;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Texts that are referred to by their number. The first is the empty one.
struct Strings<'a>(IndexSet<Cow<'a, str>>);

impl<'a> Strings<'a> {
    fn number(&mut self, text: impl Into<Cow<'a, str>>) -> i64 {
        self.0.insert_full(text.into()).0 as i64
    }
}

/// Writes the file. A sample is `period` of a CPU's time. Parts of a message may come one after the other: no more than a
/// stack is held.
pub fn write(
    graph: &Graph,
    end_ns: u64,
    duration: Duration,
    period: Duration,
    out: impl Write,
) -> io::Result<()> {
    let mut strings = Strings(IndexSet::from([Cow::Borrowed("")]));
    let mut file = GzEncoder::new(out, Compression::default());
    let value = |kind, unit| ValueType { r#type: kind, unit };
    let samples = value(strings.number("samples"), strings.number("count"));
    let cpu = value(strings.number("cpu"), strings.number("nanoseconds"));
    let keys = ["process", "component", "phase"].map(|key| strings.number(key));
    let period = period.as_nanos() as i64;
    for stack in &graph.stacks {
        let texts = [
            strings.number(&graph.processes[stack.process as usize]),
            strings.number(word(&stack.at.component)),
            strings.number(word(&stack.at.phase)),
        ];
        let labels = keys.iter().zip(texts);
        let sample = Sample {
            // they begin at 1, and the innermost is the first
            location_id: stack
                .frames
                .iter()
                .rev()
                .map(|at| u64::from(*at) + 1)
                .collect(),
            value: vec![stack.count as i64, stack.count as i64 * period],
            label: labels.map(|(key, str)| Label { key: *key, str }).collect(),
        };
        let part = Profile {
            sample: vec![sample],
            ..Profile::default()
        };
        file.write_all(&part.encode_to_vec())?;
    }
    for (function, id) in graph.functions.iter().zip(1..) {
        let line = vec![Line { function_id: id }];
        let name = strings.number(&function.name);
        let part = Profile {
            location: vec![Location { id, line }],
            function: vec![Function { id, name }],
            ..Profile::default()
        };
        file.write_all(&part.encode_to_vec())?;
    }
    let rest = Profile {
        sample_type: vec![samples, cpu.clone()],
        string_table: strings.0.into_iter().map(Cow::into_owned).collect(),
        time_nanos: end_ns as i64 - duration.as_nanos() as i64,
        duration_nanos: duration.as_nanos() as i64,
        period_type: Some(cpu),
        period,
        ..Profile::default()
    };
    file.write_all(&rest.encode_to_vec())?;
    file.finish().map(|_| ())
}
