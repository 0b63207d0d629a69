//! Every command that the documents show is one that the command line takes.

use std::fs;
use std::path::Path;

use clap::Parser;

use super::links::{files, pages};
use super::root;
use crate::Cli;

/// The lines of a page's code, with those that go on in the next joined.
fn code(text: &str) -> Vec<String> {
    let (mut code, mut lines, mut open) = (false, Vec::<String>::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
            open = false;
        } else if code {
            let (part, goes_on) = match line.trim_end().strip_suffix('\\') {
                Some(part) => (part, true),
                None => (line, false),
            };
            match lines.last_mut() {
                Some(last) if open => *last += part,
                _ => lines.push(part.to_owned()),
            }
            open = goes_on;
        }
    }
    lines
}

/// The arguments of each `batchwise` in a line of shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    // no pictures
    let line = if line.contains(['│', '─']) {
        ""
    } else {
        line
    };
    let line = line.split(" #").next().unwrap_or_default();
    let parts = line.split(['|', ';', '&']);
    let command = |part: &str| {
        let words = part.split_whitespace();
        let words = words.map(|word| word.trim_matches(['[', ']', '\'', '"']).to_owned());
        let words: Vec<String> = words.collect();
        let is_program = |word: &String| word.rsplit('/').next() == Some("batchwise");
        let at = words.iter().position(is_program)?;
        // `ip netns exec NAME batchwise ...` and the like
        let runs = at == 0 || words[at - 1] == "sudo" || at > 1 && words[at - 2] == "exec";
        let more = words[at..].iter();
        let all: Vec<String> = more
            .take_while(|w| !w.starts_with(['>', '<']))
            .cloned()
            .collect();
        (runs && all.len() > 1 && !all.contains(&"...".to_owned())).then_some(all)
    };
    parts.filter_map(command).collect()
}

/// What the units' files of variables set, as packages install them.
fn installed_options(packaging: &Path) -> Vec<(String, String)> {
    let mut options = Vec::new();
    for file in files(packaging, &["env"]) {
        let text = fs::read_to_string(file).expect("a file of variables");
        let settings = text.lines().filter(|line| !line.starts_with('#'));
        options.extend(settings.filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        }));
    }
    options
}

#[test]
fn the_reference_and_the_guides_show_commands_that_exist() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    let packaging = root().join("packaging");
    let units = files(&packaging, &["service"]);
    let options = installed_options(&packaging);
    for page in pages().into_iter().chain(units) {
        let text = fs::read_to_string(&page).expect("a page");
        let lines = match page.extension().is_some_and(|e| e == "service") {
            true => {
                let starts = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("ExecStart="));
                starts
                    .map(|line| {
                        let line = line.replace("${BATCHWISE_DECAP_FROM}", "::/0");
                        let put_in = |line: String, (name, value): &(String, String)| {
                            line.replace(&format!("${name}"), value)
                        };
                        options.iter().fold(line, put_in)
                    })
                    .collect()
            }
            false => code(&text),
        };
        for command in lines.iter().flat_map(|line| commands(line)) {
            seen += 1;
            let parsed = Cli::try_parse_from(&command);
            use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
            if let Err(error) = parsed
                && ![DisplayHelp, DisplayVersion].contains(&error.kind())
            {
                let what = error.to_string();
                let what = what.lines().next().unwrap_or_default();
                wrong.push(format!("{}: {}: {what}", page.display(), command.join(" ")));
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
