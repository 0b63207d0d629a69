//! The engine against an experiment without a stage, whose measurements are scripted.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;

use super::*;
use crate::output::Output;
use crate::{Context, Experiment as _};
use batchwise_testbed::stop::{Stop, Stopped};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    round: u32,
    arm: u32,
    attempt: u32,
    outcome: String,
}

#[derive(Default, Serialize, Deserialize)]
struct More {
    prepared: u32,
}

#[derive(Serialize)]
struct Summary {
    points: usize,
    invalid: usize,
}

/// `script` says what each measurement gives: `v`alid, `s`aturated, `i`nvalid, `x`: told to stop.
struct Scripted {
    rounds: u32,
    arms: Vec<u32>,
    script: Mutex<String>,
    measured: AtomicU32,
}

impl Scripted {
    fn new(rounds: u32, arms: &[u32], script: &str) -> Self {
        Self {
            rounds,
            arms: arms.to_vec(),
            script: Mutex::new(script.chars().rev().collect()),
            measured: AtomicU32::new(0),
        }
    }
}

impl Experiment for Scripted {
    type Stage = ();
    type Arm = u32;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "scripted"
    }
    fn about(&self) -> &'static str {
        "nothing"
    }
    fn rounds(&self, _quick: bool) -> Result<Vec<Round<u32>>> {
        let round = Round::in_order(self.arms.iter().copied());
        Ok(vec![round; self.rounds as usize])
    }
    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        no_stage()
    }
    fn prepare(&self, run: &mut Run<'_, More>, _stage: &mut ()) -> Result<()> {
        run.more.prepared += 1;
        Ok(())
    }
    fn measure(
        &self,
        _run: &mut Run<'_, More>,
        _stage: &mut (),
        turn: Turn<'_, u32>,
    ) -> Result<Vec<Point>> {
        self.measured.fetch_add(1, Ordering::Relaxed);
        let mut script = self.script.lock().unwrap();
        let outcome = script.pop().unwrap_or('v');
        if outcome == 'x' {
            return Err(Stopped.into());
        }
        Ok(vec![Point {
            round: turn.round,
            arm: *turn.arm,
            attempt: turn.attempt,
            outcome: outcome.into(),
        }])
    }
    fn judge(&self, point: &Point) -> Judgement {
        match point.outcome.as_str() {
            "s" => Judgement::Saturated,
            outcome => Judgement::valid_if(outcome != "i", "it says so"),
        }
    }
    fn part(&self, arm: &u32) -> Option<String> {
        Some(format!("arm {arm}"))
    }
    fn ladder(&self, _arm: &u32) -> Option<String> {
        Some("the only one".into())
    }
    fn describe(&self, point: &Point) -> String {
        format!("arm {}", point.arm)
    }
    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary {
            points: results.points.len(),
            invalid: results.invalid.len(),
        }
    }
    fn report(&self, _results: &Results<Point, More>, summary: &Summary) -> Report {
        Report::new("Scripted", "A test.").text(format!("`{}` points", summary.points))
    }
}

/// A folder of this test's own, and what the experiment left in it.
fn run(name: &str, experiments: &[&Scripted]) -> Value {
    let dir = std::env::temp_dir().join(format!("bw-engine-{name}-{}", std::process::id()));
    for experiment in experiments {
        let context = context(&dir);
        let outcome = experiment.run(&context);
        assert!(outcome.is_ok() || outcome.unwrap_err().is::<Stopped>());
    }
    let text = std::fs::read_to_string(dir.join("result.json")).unwrap();
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("<code>"));
    experiments[0].redraw(&context(&dir)).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn context(dir: &Path) -> Context {
    Context {
        quick: true,
        only: Vec::new(),
        length: None,
        command: std::path::PathBuf::new(),
        output: Output::create(dir).unwrap(),
        stop: Stop::default(),
    }
}

fn arms(result: &Value) -> Vec<(u64, u64)> {
    let points = result["points"].as_array().unwrap().iter();
    let number = |p: &Value, name: &str| p[name].as_u64().unwrap();
    points
        .map(|p| (number(p, "round"), number(p, "arm")))
        .collect()
}

#[test]
fn results_have_the_fields_that_they_always_had() {
    let experiment = Scripted::new(2, &[1, 2], "");
    let result = run("fields", &[&experiment]);
    assert_eq!(result["experiment"], "scripted");
    assert_eq!(result["complete"], true);
    assert_eq!(result["summary"]["points"], 4);
    assert_eq!(result["prepared"], 1);
    assert!(result["machine"]["kernel"].is_string() && result.get("network").is_none());
    assert_eq!(arms(&result), [(0, 1), (0, 2), (1, 1), (1, 2)]);
    assert_eq!(experiment.summarise(&result).unwrap(), result["summary"]);
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    // The third measurement is told to stop; the second run does the rest.
    let first = Scripted::new(2, &[1, 2], "vvvx");
    let second = Scripted::new(2, &[1, 2], "");
    let result = run("resume", &[&first, &second]);
    assert_eq!(second.measured.load(Ordering::Relaxed), 1);
    assert_eq!(arms(&result), [(0, 1), (0, 2), (1, 1), (1, 2)]);
    assert_eq!(result["run"]["resumed"], 1);
    assert_eq!(
        (&result["complete"], &result["prepared"]),
        (&true.into(), &2.into())
    );
}

#[test]
fn another_plan_or_a_complete_run_begins_anew() {
    let first = Scripted::new(2, &[1, 2], "vvvx");
    let other = Scripted::new(3, &[1, 2], "");
    run("anew", &[&first, &other]);
    assert_eq!(other.measured.load(Ordering::Relaxed), 6);
    let [first, again] = [(); 2].map(|()| Scripted::new(1, &[1, 2], ""));
    run("complete", &[&first, &again]);
    assert_eq!(again.measured.load(Ordering::Relaxed), 2);
}

#[test]
fn a_part_can_be_run_without_the_rest_and_an_unknown_one_names_all() {
    let dir = std::env::temp_dir().join(format!("bw-engine-part-{}", std::process::id()));
    let only = |part: &str| Context {
        only: vec![part.into()],
        ..context(&dir)
    };
    let experiment = Scripted::new(2, &[1, 2], "");
    experiment.run(&only("arm 2")).unwrap();
    let text = std::fs::read_to_string(dir.join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(arms(&result), [(0, 2), (1, 2)]);
    let refused = experiment.run(&only("arm 3")).unwrap_err().to_string();
    assert!(refused.contains("arm 1; arm 2"), "{refused}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_invalid_turn_is_repeated_and_at_last_missing() {
    let result = run("invalid", &[&Scripted::new(1, &[1, 2], "iviii")]);
    assert_eq!(result["summary"]["points"], 1, "only the valid one decides");
    assert_eq!(result["summary"]["invalid"], 1);
    assert_eq!(result["run"]["repeated"].as_array().unwrap().len(), 3);
    assert_eq!(result["run"]["missing"][0]["why"], "it says so");
}

#[test]
fn a_ladder_ends_when_a_load_could_not_be_carried_twice() {
    // Saturated once is a disturbance; the invalid one is no attempt.
    let result = run("ladder", &[&Scripted::new(1, &[1, 2, 3, 4], "svsisvv")]);
    assert_eq!(arms(&result), [(0, 1), (0, 1), (0, 2), (0, 2)]);
    let attempts: Vec<_> = (0..4).map(|i| &result["points"][i]["attempt"]).collect();
    assert_eq!(attempts, [0, 1, 0, 1]);
    let two_rounds = run("ladders", &[&Scripted::new(2, &[1, 2], "ss")]);
    assert_eq!(arms(&two_rounds), [(0, 1), (0, 1), (1, 1), (1, 2)]);
}
