//! What `batchwise doctor` tells programs.

use batchwise_testbed::stage::turn;

use crate::shape::hold_now;
use crate::site::{json, run};

#[test]
fn its_exit_code_is_its_status() {
    let _turn = turn();
    let output = run("doctor --format json");
    let text = String::from_utf8(output.stdout).expect("text");
    let answer: serde_json::Value = serde_json::from_str(&text).expect("one object");
    let code = match answer["status"].as_str() {
        Some("ok") => 0,
        Some("degraded") => 3,
        Some("missing") => 1,
        other => panic!("{other:?}: {text}"),
    };
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(run("doctor").status.code(), Some(code));
    hold_now("doctor", &json(&answer.to_string()));
}
