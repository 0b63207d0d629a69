//! Subcommands, their flags with the values that they take, exit codes, names of experiments.

use std::collections::BTreeSet;

use batchwise_testbed::stage::turn;

use crate::shape::hold_all_now;
use crate::site::{batchwise, fixture, run, set};

/// Wrong usage, and what fails; nothing here needs a network.
const REFUSED: [&str; 53] = [
    "",
    "nosuch",
    "--nosuch",
    "--help",
    "--version",
    "doctor --format nosuch",
    "watch --port 0",
    "watch --port 70000",
    "watch --port 17099 --interval 1ms",
    "watch --port 17099 --interval soon",
    "watch --port 17099 --count nosuch",
    "watch --port 17099 --exchange --exchange-period 0s",
    "watch --port 17099 --duration 1s --cgroup /tmp",
    "watch --port 17099 --duration 1s --metrics nowhere",
    "watch --port 17099 --duration 300ms --format jsonl",
    "tune",
    "tune --port 17098 --policy fast",
    "tune --port 17098 --policy slo:0us",
    "tune --port 17098 --budget=1.5",
    "tune --port 17098 --duration 1s --log /no/such/folder/log",
    "tune --port 17098 --duration 1s --metrics nowhere",
    "passive",
    "passive --iface lo --pcap -",
    "passive --iface lo --flows 0",
    "passive --iface lo --estimator magic",
    "passive --iface lo --estimator paper",
    "passive --iface nosuch0 --duration 1s",
    "passive --pcap /no/such/file",
    "balance",
    "balance --config /no/such/file",
    "balance status --name No/body",
    "balance status --name ct-nobody",
    "balance reload --name ct-nobody",
    "balance remove --name ct-nobody",
    "decap",
    "decap --iface lo --from 10.0.0.0/33",
    "window --gate 0",
    "window --duration 1s --cgroup /tmp",
    "window --duration 1s --metrics nowhere",
    "profile --port 70000",
    "profile --compare nagle",
    "profile --duration 1s --report /no/such/folder/page.html",
    "profile diff /no/such/a /no/such/b",
    "burst",
    "burst mark",
    "burst mark --interface nosuch0 --duration 1s",
    "burst admit --interface nosuch0 --duration 1s",
    "doctor --for nosuch",
    "watch --port 17099 --cost much",
    "watch --port 17099 --duration 1s --cost 0.001%",
    "load redis --addr 127.0.0.1:9 --rate 10 --duration 100ms",
    "load redis --addr 127.0.0.1:9 --rate -1",
    "lab run nosuch",
];

#[test]
fn exit_codes() {
    let _turn = turn();
    let code = |args: &str| {
        let output = run(args);
        let code = output.status.code().expect("no signal ended it");
        format!("{code}: batchwise {args}").trim_end().to_owned()
    };
    hold_all_now("exit-codes", &set(REFUSED.map(code)));
}

#[test]
fn configurations_of_balance() {
    let check = |file: &str| {
        let mut command = batchwise("balance --check --config");
        let output = command.arg(fixture(file)).output().expect("it runs");
        format!("{}: {file}", output.status.code().expect("no signal"))
    };
    // every key, and one that is none
    let files = ["every-key.toml", "unknown-key.toml"];
    hold_all_now("configurations", &set(files.map(check)));
}

#[test]
fn experiments() {
    let output = run("lab list");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.lines().filter_map(|l| l.split_whitespace().next());
    hold_all_now("experiments", &set(names));
}

#[test]
fn flags() {
    let mut found = BTreeSet::new();
    let mut todo = vec![String::new()];
    while let Some(command) = todo.pop() {
        let output = run(&format!("{command} --help"));
        assert!(output.status.success(), "{command}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        todo.extend(read_help(command.trim(), &text, &mut found));
    }
    // A name of former times is taken, but no longer shown: what is refused is only the missing port.
    let former = "tune --format plain";
    let refused = String::from_utf8(run(former).stderr).expect("text");
    if refused.contains("--port") && !refused.contains("invalid value") {
        found.insert(former.to_owned());
    }
    hold_all_now("flags", &found);
}

/// Adds flags, their values where these are named, and arguments; gives the subcommands.
fn read_help(command: &str, text: &str, found: &mut BTreeSet<String>) -> Vec<String> {
    let (mut section, mut flag, mut subcommands) = ("", String::new(), Vec::new());
    for line in text.lines() {
        let word = line.trim().split([' ', '=']).next().unwrap_or_default();
        if !line.starts_with(' ') && line.ends_with(':') {
            section = line;
        } else if section == "Commands:" && word != "help" && !word.is_empty() {
            found.insert(format!("{command} {word}").trim().to_owned());
            subcommands.push(format!("{command} {word}"));
        } else if section == "Arguments:" && word.starts_with(['<', '[']) && word.len() > 2 {
            found.insert(format!("{command} {word}"));
        } else if section == "Options:" {
            let long = line.split([' ', ',', '[']).find(|w| w.starts_with("--"));
            let named = line.trim_start().starts_with('-') && !line.trim_start().starts_with("- ");
            if let Some(long) = long.filter(|_| named) {
                flag = format!("{command} {long}").trim().to_owned();
                found.insert(flag.clone());
            } else if let Some((value, _)) = line
                .trim()
                .strip_prefix("- ")
                .and_then(|l| l.split_once(':'))
            {
                found.insert(format!("{flag} {value}"));
            } else if let Some((_, values)) = line.split_once("[possible values: ") {
                let values = values.trim_end_matches(']').split(", ");
                found.extend(values.map(|value| format!("{flag} {value}")));
            }
        }
    }
    subcommands
}
