//! What the user gets wrong.

use std::fs;
use std::process::{Output, Stdio};

use batchwise_testbed::stage::{batchwise, turn};
use tempfile::TempDir;

fn watch(args: &[&str]) -> Output {
    let mut command = batchwise();
    command.args(["watch", "--port", "17098", "--duration", "300ms"]);
    command.args(["--interval", "100ms", "--format", "jsonl"]);
    let command = command.args(args).stdin(Stdio::null());
    command.output().expect("the command runs")
}

#[test]
fn a_path_that_cannot_be_the_socket_is_refused_with_the_remedy() {
    let _turn = turn();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "something").expect("a file");
    let long = folder.path().join("x".repeat(200));
    for path in [&file, &file.join("below"), &long] {
        let path = path.to_str().expect("text");
        let output = watch(&["--hints", path]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(&path[..path.len().min(60)]), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    assert_eq!(fs::read(&file).expect("untouched"), b"something");
}

#[test]
fn users_are_allowed_only_where_hints_are_taken() {
    let _turn = turn();
    let output = watch(&["--hints-uid", "1000"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--hints"), "{error}");
}

#[test]
fn without_any_hint_watching_goes_on_and_the_socket_is_removed() {
    let _turn = turn();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("hint.sock");
    let output = watch(&["--hints", path.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert!(!path.exists());
}
