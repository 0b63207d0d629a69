//! The format of pprof (github.com/google/pprof, `proto/profile.proto`): gzipped protobuf.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write as _};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::frames::Named;
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

/// Things that are referred to by their number.
struct Table<T>(HashMap<T, usize>);

impl<T: Hash + Eq + Clone> Table<T> {
    fn number(&mut self, of: &T) -> usize {
        let next = self.0.len();
        *self.0.entry(of.clone()).or_insert(next)
    }

    fn into_list(self) -> Vec<T> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|(_, number)| *number);
        all.into_iter().map(|(thing, _)| thing).collect()
    }
}

/// The file's bytes. A sample is `period` of a CPU's time.
pub fn encode(
    stacks: &[Named],
    end_ns: u64,
    duration: Duration,
    period: Duration,
) -> io::Result<Vec<u8>> {
    // the first is the empty one
    let mut strings = Table(HashMap::from([(String::new(), 0)]));
    let mut functions = Table(HashMap::new());
    let mut string = |text: &str| strings.number(&text.to_owned()) as i64;
    let value = |kind, unit| ValueType { r#type: kind, unit };
    let cpu = value(string("cpu"), string("nanoseconds"));
    let sample_type = vec![value(string("samples"), string("count")), cpu.clone()];
    let keys = ["process", "component", "phase"].map(&mut string);
    let period = period.as_nanos() as i64;
    let sample = |stack: &Named| {
        let labels = [
            stack.process.clone(),
            word(&stack.at.component),
            word(&stack.at.phase),
        ];
        let label = |(key, text): (&i64, String)| Label {
            key: *key,
            str: string(&text),
        };
        let label = keys.iter().zip(labels).map(label).collect();
        // numbers of locations and functions begin at 1
        let locations = stack.frames.iter().rev();
        let locations = locations.map(|frame| functions.number(&string(&frame.name)) as u64 + 1);
        Sample {
            location_id: locations.collect(),
            value: vec![stack.count as i64, stack.count as i64 * period],
            label,
        }
    };
    let sample = stacks.iter().map(sample).collect();
    let functions: Vec<i64> = functions.into_list();
    let ids = || 1..=functions.len() as u64;
    let profile = Profile {
        sample_type,
        sample,
        location: ids()
            .map(|id| Location {
                id,
                line: vec![Line { function_id: id }],
            })
            .collect(),
        function: ids()
            .zip(&functions)
            .map(|(id, name)| Function { id, name: *name })
            .collect(),
        string_table: strings.into_list(),
        time_nanos: end_ns as i64 - duration.as_nanos() as i64,
        duration_nanos: duration.as_nanos() as i64,
        period_type: Some(cpu),
        period,
    };
    let mut file = GzEncoder::new(Vec::new(), Compression::default());
    file.write_all(&profile.encode_to_vec())?;
    file.finish()
}
