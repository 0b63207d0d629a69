//! What tests leave out since this machine lacks it: each says so, and `make test` counts them in its last line.

use std::fs::File;
use std::io::{self, Write as _};

/// Names the file that gets a line for each thing that was left out.
const FILE: &str = "BATCHWISE_LEFT_OUT";

/// Says that the calling test leaves something out, and `why`: the feature that this kernel lacks. The product must do
/// without it. What it cannot do without, as root and BPF, is never left out: tests fail where it is missing.
///
/// # Panics
/// It cannot be written down.
pub fn left_out(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let line = format!("{test}: {why}\n");
    // what `eprint!` says is kept from sight when a test passes
    let mut said = write!(io::stderr(), "left out: {line}");
    if let Some(path) = std::env::var_os(FILE) {
        let file = File::options().append(true).create(true).open(path);
        said = said.and(file.and_then(|mut file| file.write_all(line.as_bytes())));
    }
    said.expect("what is left out is written down");
}
