//! `batchwise report`: what `watch --record` has kept, as a page that is readable on its own.

mod page;
mod recording;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use flate2::bufread::MultiGzDecoder;

use crate::frame::whole::replace;
use recording::Recording;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise watch --record incident.jsonl.gz --duration 10m
  batchwise report incident.jsonl.gz -o incident.html
      one page, with all that it needs in it: send either";

/// Make a page of what `watch` has recorded.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Lines of `watch --record` or `watch --format jsonl`, compressed or not; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the page goes
    #[arg(short, long, value_name = "PAGE", default_value = "report.html")]
    output: PathBuf,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let name = args.file.display();
    let from: Box<dyn Read> = match args.file.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(&args.file).with_context(|| format!("opening {name}"))?),
    };
    let recording = read(BufReader::new(from)).with_context(|| format!("reading {name}"))?;
    if recording.services.is_empty() {
        bail!(
            "{name} has no lines of `batchwise watch`: record some by `batchwise watch --record {name}`"
        );
    }
    let page = page::page(&recording);
    replace(&args.output, &page).with_context(|| format!("writing {}", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether it is compressed its first bytes tell.
fn read(mut from: impl BufRead) -> io::Result<Recording> {
    match from.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        true => lines(BufReader::new(MultiGzDecoder::new(from))),
        false => lines(from),
    }
}

fn lines(from: impl BufRead) -> io::Result<Recording> {
    let mut recording = Recording::default();
    for line in from.split(b'\n') {
        match line {
            Ok(line) => recording.take(&line),
            // the agent was killed while it wrote: what is there is there
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(recording)
}
