//! `batchwise load` and `batchwise lab` are commands of their own, `batchwise-load` and
//! `batchwise-lab`, which not every machine has. This one becomes them when they are beside it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

/// What a sibling is given, options and `--help` included.
#[derive(Debug, Args)]
pub struct SiblingArgs {
    /// See `--help` of this subcommand
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    args: Vec<OsString>,
}

/// `batchwise help load` as `batchwise load help`: what is helped with is not known here.
pub fn reorder_help(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<_> = args.collect();
    let word = |index: usize| args.get(index).and_then(|word| word.to_str());
    if let (Some("help"), Some("load" | "lab")) = (word(1), word(2)) {
        args.swap(1, 2);
    }
    args
}

/// Becomes `batchwise-NAME`.
///
/// # Errors
/// It is not beside this command, or cannot be started.
pub fn run(name: &str, args: &SiblingArgs) -> Result<Infallible> {
    let own = std::env::current_exe().context("finding the batchwise command itself")?;
    let sibling = own.with_file_name(format!("batchwise-{name}"));
    if !sibling.is_file() {
        bail!(
            "`batchwise {name}` is a command of its own, which is not installed: there is no {}; \
             `make lab` builds it as target/release/batchwise-{name}, copy that beside batchwise",
            sibling.display()
        );
    }
    let error = Command::new(&sibling)
        // as usage texts and `ps` show it
        .arg0(format!("batchwise {name}"))
        .args(&args.args)
        .exec();
    Err(error).with_context(|| format!("starting {}", sibling.display()))
}
