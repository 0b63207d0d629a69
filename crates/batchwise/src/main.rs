//! The `batchwise` command. All of it is in the library beside it, where `batchwise-pages` finds its
//! arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    batchwise::main()
}
