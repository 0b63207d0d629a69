//! Where the project's own commands are, `batchwise`, `batchwise-load` and `batchwise-lab`: beside the
//! program that looks for them, or, when that is a test, in the folder above it, where cargo builds
//! them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The command called `name`.
pub fn find(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program itself")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    // cargo's tests and examples are in `deps` and `examples`
    let folder = match folder.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => folder.parent().unwrap_or(folder),
        _ => folder,
    };
    let command = folder.join(name);
    if !command.is_file() {
        bail!(
            "there is no `{name}` in {}, where this program is: `make lab` builds all commands; \
             for tests `cargo test --workspace --locked` does, and \
             `cargo build -p {name} --locked` this one",
            folder.display()
        );
    }
    Ok(command)
}

/// The same for tests, which cannot go on without it.
///
/// # Panics
/// It is not there.
pub fn required(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|error| panic!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_missing_is_named_with_where_it_should_be_and_how_to_get_it() {
        let error = find("batchwise-nothing").unwrap_err().to_string();
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(Path::parent).unwrap();
        for part in ["batchwise-nothing", folder.to_str().unwrap(), "make lab"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}
