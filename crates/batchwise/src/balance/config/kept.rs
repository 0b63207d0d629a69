//! The last configuration that was in force, kept for an agent that starts when its file no longer holds:
//! after a crash, nobody would look after what forwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Config, text_of};
use crate::frame::whole::replace;

/// Where copies of configurations are, one for each file.
#[derive(Clone, Debug)]
pub struct Kept(PathBuf);

impl Kept {
    /// The copy of `file` in `folder`.
    pub fn of(file: &Path, folder: &Path) -> Self {
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        // as systemd-escape(1): no two paths have the same name
        let name = file.to_string_lossy().replace('-', "\\x2d");
        Self(folder.join(format!("balance{}", name.replace('/', "-"))))
    }

    /// The configuration of `file` that was kept.
    pub fn read(&self, file: &Path) -> anyhow::Result<Config> {
        let path = self.0.display();
        let text = text_of(&self.0).with_context(|| format!("reading {path}"))?;
        Config::parse(file, &text)
    }

    pub fn is_there(&self) -> bool {
        self.0.exists()
    }

    /// Keeps `file` as it is, if it still says what is in force. All of it, or nothing.
    pub fn keep(
        &self,
        file: &Path,
        is_in_force: impl FnOnce(Config) -> bool,
    ) -> anyhow::Result<()> {
        let text = text_of(file)?;
        if !is_in_force(Config::parse(file, &text)?) {
            return Ok(()); // changed since
        }
        let folder = self.0.parent().context("a file without a folder")?;
        let name = || format!("cannot keep {} in {}", file.display(), folder.display());
        fs::create_dir_all(folder).with_context(name)?;
        replace(&self.0, &text).with_context(name)
    }
}
