//! `--record`: all lines in one compressed file, for whoever is to look at them later. JSON lines in gzip: `zcat`, jq and
//! DuckDB read them, and what an agent that was killed has written can be read, too; Parquet has its index at the end.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use batchwise_core::sense::report::Line;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::frame::background::BackgroundWriter;
use crate::frame::rows::JsonLines;

/// None: nothing can be written any more.
pub struct Recorder(Option<BackgroundWriter>);

impl Recorder {
    /// What was there is replaced.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        // who the clients are is not everybody's business
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(path);
        let file = file.with_context(|| format!("--record {}", path.display()))?;
        let gzip = GzEncoder::new(file, Compression::default());
        Ok(Self(Some(BackgroundWriter::new("the recording", gzip))))
    }

    /// Takes an interval's lines.
    pub fn take<'a>(&mut self, mut lines: impl Iterator<Item = &'a Line>) {
        let Some(writer) = &mut self.0 else {
            return;
        };
        let mut text = JsonLines::default();
        let written = lines.try_for_each(|line| text.push(line));
        let written = written.map_err(io::Error::other);
        if let Err(error) = written.and_then(|()| writer.write(text.into_bytes())) {
            tracing::warn!("recording has ended: {error}");
            self.0 = None;
        }
    }
}
