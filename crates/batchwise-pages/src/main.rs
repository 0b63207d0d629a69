//! Writes manual pages and completions of the three commands into a folder: `batchwise-pages DIR`.
//! Packages have them; whoever uses the commands needs no subcommand for it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

fn main() -> Result<()> {
    let dir = env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.context("usage: batchwise-pages DIR")?;
    fs::create_dir_all(&dir)?;
    let mut command = whole();
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "batchwise", &dir)?;
    }
    command.build();
    pages(&dir, &mut command, None)
}

/// `batchwise` with the arguments of `load` and `lab`, which are commands of their own, in their place.
fn whole() -> Command {
    let siblings = [
        ("load", batchwise_load::cli::command()),
        ("lab", batchwise_lab::cli::command()),
    ];
    let command = batchwise::command().disable_help_subcommand(true);
    siblings
        .into_iter()
        .fold(command, |command, (name, sibling)| {
            let sibling = sibling.name(name).disable_help_subcommand(true);
            command.mut_subcommand(name, |_| sibling)
        })
}

/// `batchwise.1`, `batchwise-watch.1`, `batchwise-load-redis.1` and so on.
fn pages(dir: &Path, command: &mut Command, parent: Option<&str>) -> Result<()> {
    let man = Man::new(command.clone())
        .source(concat!("batchwise ", env!("CARGO_PKG_VERSION")))
        .manual("batchwise");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    // mangen's own names every option
    verbatim("SYNOPSIS", &usage(command)).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let extra = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    if let Some(extra) = extra {
        // mangen's own fills lines
        let extra = extra.to_string();
        let extra = extra.trim_start_matches("Examples:\n");
        verbatim("EXAMPLES", extra).to_writer(&mut page)?;
    }
    if let Some(parent) = parent {
        verbatim("SEE ALSO", &format!("{parent}(1)")).to_writer(&mut page)?;
    }
    fs::write(dir.join(man.get_filename()), page)?;

    let name = man.get_filename().replace(".1", "");
    let shown = command.get_subcommands_mut().filter(|s| !s.is_hide_set());
    shown
        .into_iter()
        .try_for_each(|sub| pages(dir, sub, Some(&name)))
}

fn usage(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_owned()
}

/// A section whose lines stay as they are.
fn verbatim(title: &str, text: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []);
    for line in text.lines() {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_and_lab_have_their_own_arguments() {
        let command = whole();
        command.clone().debug_assert();
        let has = |path: [&str; 2]| {
            let found = path
                .iter()
                .try_fold(&command, |at, name| at.find_subcommand(name));
            found.is_some()
        };
        assert!(has(["load", "redis"]) && has(["lab", "run"]));
    }
}
