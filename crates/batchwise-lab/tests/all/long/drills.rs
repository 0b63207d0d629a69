//! The shortest drills: `lab run drills --quick`, once. Needs root.

use std::process::Command;

use batchwise_testbed::commands;
use batchwise_testbed::stage::turn;
use serde_json::Value;
use tempfile::TempDir;

const QUICK: [&str; 6] = [
    "agent-killed",
    "nginx-nopush",
    "disk-full",
    "reader-leaves",
    "namespace-deleted",
    "memory-limit",
];

#[test]
fn quick_drills_hold() {
    let _turn = turn();
    let folder = TempDir::new().expect("a folder");
    let mut lab = Command::new(commands::required("batchwise-lab"));
    lab.args(["run", "drills", "--quick", "--out"])
        .arg(folder.path());
    for drill in QUICK {
        lab.args(["--only", drill]);
    }
    let output = lab.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result = std::fs::read(folder.path().join("result.json")).expect("a result");
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    let summary = &result["summary"];
    for drill in QUICK {
        assert_eq!(summary["drills"][drill]["held"], 1, "{drill}: {summary:#}");
    }
    assert!(summary["requests"].as_u64() > Some(10_000), "{summary:#}");
    for none in [
        "broken_connections",
        "wrong_replies",
        "settings_not_given_back",
        "agents_died",
        "not_done",
    ] {
        assert_eq!(summary[none], 0, "{none}: {summary:#}");
    }
}
