//! Small C libraries that the lab preloads into servers, built when they are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// A library in a directory of its own, which goes with it.
#[derive(Debug)]
pub struct Preload {
    dir: TempDir,
    name: &'static str,
}

impl Preload {
    /// Builds `source`; `name` is what the files are called.
    pub fn build(name: &'static str, source: &str) -> Result<Self> {
        let dir = TempDir::with_prefix(format!("bw-{name}-")).context("making a directory")?;
        let built = Self { dir, name };
        let file = built.dir().join(format!("{name}.c"));
        fs::write(&file, source)?;
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([&built.library(), &file])
            .output()
            .context("a C compiler is needed (Debian: apt install gcc libc6-dev)")?;
        if !output.status.success() {
            bail!(
                "cc cannot build {name}.c: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(built)
    }

    /// What LD_PRELOAD is to name.
    pub fn library(&self) -> PathBuf {
        self.dir().join(format!("{}.so", self.name))
    }

    /// Its directory: for files that the library reads.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
