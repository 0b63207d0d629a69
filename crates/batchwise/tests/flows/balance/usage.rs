//! What the operator gets wrong, without any privilege.

use std::fs;
use std::process::Output;

use batchwise_testbed::stage::batchwise;
use batchwise_testbed::stage::refusal::{assert_refused, run};
use tempfile::TempDir;

fn balance(folder: &TempDir, args: &[&str]) -> Output {
    let mut command = batchwise();
    command.env("BATCHWISE_RUN_DIR", folder.path());
    run(command.current_dir(folder.path()).arg("balance").args(args))
}

#[test]
fn a_configuration_can_be_checked_without_being_brought_into_force() {
    let folder = TempDir::new().expect("a folder");
    let right =
        "interfaces = [\"eth0\"]\n[[service]]\nname = \"w\"\naddress = \"10.9.0.1\"\nport = 80\n";
    fs::write(folder.path().join("a.toml"), right).expect("a file");
    let output = balance(&folder, &["--config", "a.toml", "--check"]);
    assert!(output.status.success(), "{output:?}");
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(
        warned.contains("warning: a.toml:2: service w has no backend: its packets are dropped"),
        "{warned}"
    );
    let wrong = right.replace("port = 80", "port = 80\nmethod = \"nat\"");
    fs::write(folder.path().join("a.toml"), wrong).expect("a file");
    let output = balance(&folder, &["--config", "a.toml", "--check"]);
    assert_refused(&output, 1, &["a.toml:6: ", "\"nat\"", "\"ipip\""]);
}

#[test]
fn what_is_missing_is_named_with_the_remedy() {
    let folder = TempDir::new().expect("a folder");
    assert_refused(&balance(&folder, &[]), 1, &["--config FILE"]);
    let output = balance(&folder, &["--config", "none.toml"]);
    assert_refused(&output, 1, &["none.toml", "cannot be read"]);
    let output = balance(&folder, &["reload", "--name", "c-nobody"]);
    assert_refused(&output, 1, &["no agent", "c-nobody", "--config FILE"]);
    let output = balance(&folder, &["status", "--name", "No/body"]);
    assert_refused(&output, 2, &["--name", "a-z"]);
    let output = balance(&folder, &["remove", "--name", "c-nobody"]);
    assert_refused(&output, 1, &["nothing is pinned"]);
}
