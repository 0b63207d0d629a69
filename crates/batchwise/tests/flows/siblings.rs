//! `batchwise load` and `batchwise lab`, which are commands of their own beside `batchwise`.

use std::fs;
use std::process::Command;

use batchwise_testbed::commands;
use batchwise_testbed::stage::batchwise;
use batchwise_testbed::stage::refusal::{assert_refused, run};
use tempfile::TempDir;

#[test]
fn all_arguments_and_the_exit_code_are_the_siblings() {
    commands::required("batchwise-load");
    commands::required("batchwise-lab");
    for (args, code, words) in [
        (
            &["load", "--help"][..],
            0,
            "Usage: batchwise load <COMMAND>",
        ),
        (&["help", "load", "redis"], 0, "Usage: batchwise load redis"),
        (&["load", "redis", "--rate", "5"], 2, "--addr"),
        (&["lab", "list"], 0, "balance-tail"),
        (&["lab", "run", "--nosuch"], 2, "--nosuch"),
        (&["lab", "run", "nosuch"], 1, "accuracy"),
    ] {
        let output = run(batchwise().args(args));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn one_that_is_not_installed_is_named_with_its_place_and_the_remedy() {
    let command = commands::required("batchwise");
    // a link, as a copy cannot be started while another test starts a process
    let folder = TempDir::new_in(command.parent().expect("a folder")).expect("a folder in it");
    let alone = folder.path().join("batchwise");
    fs::hard_link(&command, &alone).expect("a link");
    for name in ["load", "lab"] {
        let output = run(Command::new(&alone).args([name, "--help"]));
        let place = folder.path().join(format!("batchwise-{name}"));
        let place = place.to_str().expect("text");
        assert_refused(&output, 1, &[place, "make lab"]);
    }
}
