//! `result.json`: the form in which results are written, and read again to continue or redraw.

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::experiment::{Experiment, Judgement, Results};
use crate::Context;

/// How far a run has come, as the field `run` of `result.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progressed {
    pub quick: bool,
    /// Parts of the experiment; empty: all.
    #[serde(default)]
    pub only: Vec<String>,
    pub turns: usize,
    /// The round that is under way, or comes next.
    pub round: usize,
    /// Arms of that round that are done.
    pub done: Vec<usize>,
    /// Ladders of that round that have ended.
    pub ended: Vec<String>,
    /// Turns that were repeated because their points were invalid, and why.
    pub repeated: Vec<Refused>,
    /// Turns that were invalid in every attempt.
    pub missing: Vec<Refused>,
    /// How often the run was continued.
    pub resumed: u32,
}

/// A turn whose points do not count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Refused {
    pub what: String,
    pub why: String,
}

pub(super) struct Record<P, M> {
    pub machine: Value,
    pub network: Value,
    pub complete: bool,
    pub progressed: Progressed,
    pub results: Results<P, M>,
}

impl<P: Serialize + DeserializeOwned, M: Serialize + DeserializeOwned> Record<P, M> {
    /// Reads what [`Self::write`] or an older version wrote.
    pub fn parse<E>(experiment: &E, value: &Value) -> Result<Self>
    where
        E: Experiment<Point = P, More = M>,
    {
        let name = value["experiment"].as_str().unwrap_or_default();
        if name != Experiment::name(experiment) {
            bail!("it is a result of {name:?}");
        }
        let points = Vec::<P>::deserialize(&value["points"]).context("in its points")?;
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for point in points {
            match experiment.judge(&point) {
                Judgement::Invalid(_) => invalid.push(point),
                _ => valid.push(point),
            }
        }
        let more = M::deserialize(value).context("in the fields beside its points")?;
        let progressed = match &value["run"] {
            Value::Null => Progressed::default(),
            run => Progressed::deserialize(run).context("in its field \"run\"")?,
        };
        Ok(Self {
            machine: value["machine"].clone(),
            network: value["network"].clone(),
            complete: value["complete"].as_bool().unwrap_or_default(),
            results: Results {
                quick: progressed.quick,
                points: valid,
                invalid,
                more,
            },
            progressed,
        })
    }

    /// As JSON, with this summary.
    pub fn write(&self, name: &str, summary: &impl Serialize) -> Result<String> {
        #[derive(Serialize)]
        struct Form<'a, M, S> {
            experiment: &'a str,
            machine: &'a Value,
            #[serde(skip_serializing_if = "Value::is_null")]
            network: &'a Value,
            complete: bool,
            points: Vec<Value>,
            #[serde(flatten)]
            more: &'a M,
            summary: &'a S,
            run: &'a Progressed,
        }
        let all = self.results.points.iter().chain(&self.results.invalid);
        let form = Form {
            experiment: name,
            machine: &self.machine,
            network: &self.network,
            complete: self.complete,
            points: all.map(serde_json::to_value).collect::<Result<_, _>>()?,
            more: &self.results.more,
            summary,
            run: &self.progressed,
        };
        let mut text = serde_json::to_string_pretty(&form).context("making JSON of the result")?;
        text.push('\n');
        Ok(text)
    }

    /// Whether a run with this plan can go on from here: the same experiment on the same machine,
    /// interrupted.
    pub fn continues(&self, context: &Context, turns: usize, machine: &Value) -> bool {
        let same = |name: &str| self.machine[name] == machine[name];
        !self.complete
            && self.progressed.turns == turns
            && self.progressed.quick == context.quick
            && self.progressed.only == context.only
            && ["kernel", "cpu", "batchwise"].into_iter().all(same)
    }
}

/// Names and values of an object, for a table.
pub(super) fn facts(of: &Value) -> Vec<(String, String)> {
    let name = |key: &str| {
        let words = key.replace('_', " ").replace("cpu", "CPU");
        let words = words.replace("bpf jit", "BPF JIT");
        let mut letters = words.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().collect::<String>() + letters.as_str()
        })
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = of.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (name(key), text(value)))
        .collect()
}
