//! A log of JSON lines in a file. It never holds up the loop and never ends it: a full disk drops
//! lines, whole and counted, and writing resumes by itself. A signal opens it anew after it was moved.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::Serialize;

use super::background::{BackgroundWriter, Target};
use super::lines::Lines;

pub struct LogFile {
    writer: BackgroundWriter,
    dropped: Arc<AtomicU64>,
}

impl LogFile {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = append(path).with_context(|| {
            let path = path.display();
            format!(
                "cannot write {path}: --log needs a folder that exists, and leave to write there"
            )
        })?;
        let lines = Lines::new(path.display().to_string(), file);
        let dropped = Arc::clone(&lines.dropped);
        let path = path.to_owned();
        let target = LogTarget { path, lines };
        Ok(Self {
            writer: BackgroundWriter::new("the log", target),
            dropped,
        })
    }

    pub fn line(&mut self, line: &impl Serialize) {
        let written = serde_json::to_vec(line).map_err(io::Error::other);
        let written = written.and_then(|mut text| {
            text.push(b'\n');
            self.writer.write(text)
        });
        if let Err(error) = written {
            tracing::warn!("a line of the log is lost: {error}");
        }
    }

    /// Opens the file anew: it may have been moved away.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Lines that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.writer.dropped()
    }

    /// Waits for what was written to be in the file.
    #[cfg(test)]
    pub fn flush(&self) {
        self.writer.flush();
    }
}

fn append(path: &Path) -> io::Result<File> {
    // who the clients are is not everybody's business
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640);
    // opening a pipe would wait for its reader, and a signal would not end that
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options.open(path).map_err(|error| {
        match Errno::from_raw(error.raw_os_error().unwrap_or_default()) {
            Errno::ENXIO => io::Error::other("nobody reads this pipe"),
            _ => error,
        }
    })?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

struct LogTarget {
    path: PathBuf,
    lines: Lines,
}

impl Target for LogTarget {
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        // it has been counted and said, and the next may find room
        let _ = self.lines.put(line);
        Ok(())
    }

    fn reopen(&mut self) {
        match append(&self.path) {
            Ok(file) => self.lines.go_on_in(file),
            Err(error) => tracing::warn!(
                "{} cannot be opened again ({error}): the log goes on where it was",
                self.path.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn folder() -> (TempDir, PathBuf) {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("log.jsonl");
        (folder, path)
    }

    #[test]
    fn a_full_disk_drops_and_counts_and_never_fails() {
        let mut log = LogFile::open(Path::new("/dev/full")).expect("it can be opened");
        for n in 0..10 {
            log.line(&n);
        }
        log.flush();
        assert_eq!(log.dropped(), 10);
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_refused_at_once() {
        let (_folder, path) = folder();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let refused = LogFile::open(&path)
            .map(drop)
            .expect_err("it has no reader");
        assert!(
            format!("{refused:#}").contains("nobody reads"),
            "{refused:#}"
        );
    }

    #[test]
    fn it_follows_its_path_when_it_is_opened_anew() {
        let (folder, path) = folder();
        let away = folder.path().join("log.jsonl.1");
        let mut log = LogFile::open(&path).expect("a log");
        log.line(&1);
        log.flush();
        fs::rename(&path, &away).expect("moved");
        log.line(&2);
        log.reopen();
        log.line(&3);
        log.flush();
        assert_eq!(fs::read_to_string(&away).expect("a log"), "1\n2\n");
        assert_eq!(fs::read_to_string(&path).expect("a log"), "3\n");
    }
}
