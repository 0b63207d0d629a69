//! Every command that the documents show is one that the command line takes.

use std::path::PathBuf;

use clap::Parser;
use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};

use super::links::{files, pages};
use super::{read, root};
use crate::Cli;

/// The lines of a page's code, with those that go on in the next joined.
fn code(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    let code = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
    let code = code.collect::<String>().replace("\\\n", "");
    code.lines().map(str::to_owned).collect()
}

/// The arguments of each `batchwise` in a line of shell.
fn commands(line: &str) -> Vec<Vec<&str>> {
    if line.contains(['│', '─']) {
        return Vec::new(); // a picture
    }
    let line = line.split(" #").next().unwrap_or_default();
    let command = |part| {
        let words = str::split_whitespace(part).map(|w| w.trim_matches(['[', ']', '\'', '"']));
        let words: Vec<_> = words.collect();
        let is_program = |word: &&str| word.rsplit('/').next() == Some("batchwise");
        let at = words.iter().position(is_program)?;
        // `ip netns exec NAME batchwise ...` and the like
        let runs = at == 0 || words[at - 1] == "sudo" || at > 1 && words[at - 2] == "exec";
        let all = words[at..].iter().copied();
        let all: Vec<_> = all.take_while(|w| !w.starts_with(['>', '<'])).collect();
        (runs && all.len() > 1 && !all.contains(&"...")).then_some(all)
    };
    line.split(['|', ';', '&']).filter_map(command).collect()
}

/// What units start, each with its file. Packages install the variables.
fn started() -> Vec<(PathBuf, Vec<String>)> {
    let packaging = root().join("packaging");
    let variables: String = files(&packaging, &["env"]).iter().map(read).collect();
    let variables = variables.lines().filter(|line| !line.starts_with('#'));
    let variables: Vec<_> = variables.filter_map(|line| line.split_once('=')).collect();
    let fill = |line: &str| {
        let line = line.replace("${BATCHWISE_DECAP_FROM}", "::/0");
        variables.iter().fold(line, |line, (name, value)| {
            line.replace(&format!("${name}"), value.trim_matches('"'))
        })
    };
    let starts = |unit: PathBuf| {
        let text = read(&unit);
        let lines = text.lines().filter_map(|l| l.strip_prefix("ExecStart="));
        (unit, lines.map(fill).collect())
    };
    files(&packaging, &["service"])
        .into_iter()
        .map(starts)
        .collect()
}

#[test]
fn the_reference_and_the_guides_show_commands_that_exist() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    let documents = pages().into_iter().map(|page| {
        let lines = code(&read(&page));
        (page, lines)
    });
    for (file, lines) in documents.chain(started()) {
        for command in lines.iter().flat_map(|line| commands(line)) {
            seen += 1;
            if let Err(error) = Cli::try_parse_from(&command)
                && !matches!(error.kind(), DisplayHelp | DisplayVersion)
            {
                let what = error.to_string();
                let what = what.lines().next().unwrap_or_default();
                wrong.push(format!("{}: {}: {what}", file.display(), command.join(" ")));
            }
        }
    }
    assert!(seen > 40, "only {seen} commands were found");
    assert!(wrong.is_empty(), "no such commands:\n{}", wrong.join("\n"));
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let line =
        "tcpdump -w - | sudo target/release/batchwise passive --pcap - [--per-flow] > x  # why";
    let found = commands(line);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0][1..], ["passive", "--pcap", "-", "--per-flow"]);
    let page = "```\na \\\nb\n```\nc\n";
    assert_eq!(code(page), ["a b"]);
}
