//! A log of JSON lines in a file. It never holds up the loop and never ends it: a full disk drops
//! lines, whole and counted, and writing resumes by itself. A signal opens it anew after it was moved.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use serde::Serialize;

use super::background::{BackgroundWriter, Target};

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
        let dropped = Arc::new(AtomicU64::new(0));
        let target = LogTarget {
            path: path.to_owned(),
            file,
            dropped: Arc::clone(&dropped),
            said: 0,
            torn: false,
        };
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
    options.create(true).append(true).mode(0o640).open(path)
}

struct LogTarget {
    path: PathBuf,
    file: File,
    dropped: Arc<AtomicU64>,
    /// Those of the dropped that have been spoken of.
    said: u64,
    /// The file ends amid a line.
    torn: bool,
}

impl LogTarget {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut written = 0;
        while written < line.len() {
            match self.file.write(&line[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.torn = written > 0 && self.take_back(written).is_err();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Half a line is no JSON.
    fn take_back(&self, written: usize) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        self.file.set_len(length.saturating_sub(written as u64))
    }
}

impl Target for LogTarget {
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let result = self.append(line);
        let path = self.path.display();
        match result {
            Ok(()) if dropped > self.said => {
                let lines = dropped - self.said;
                tracing::warn!("{path} can be written again; {lines} lines were dropped");
                self.said = dropped;
            }
            Ok(()) => {}
            Err(error) => {
                if dropped == self.said {
                    tracing::warn!(
                        "{path} cannot be written ({error}): lines are dropped until it can"
                    );
                }
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        match append(&self.path) {
            Ok(file) => (self.file, self.torn) = (file, false),
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
    fn it_resumes_when_there_is_room_again_and_holds_whole_lines_only() {
        let (_folder, path) = folder();
        let mut target = LogTarget {
            path: path.clone(),
            file: append(&path).expect("a file"),
            dropped: Arc::default(),
            said: 0,
            torn: false,
        };
        target.put(b"1\n").expect("it never fails");
        let full = File::options().append(true).open("/dev/full");
        let file = std::mem::replace(&mut target.file, full.expect("a full disk"));
        target.put(b"2\n").expect("it never fails");
        target.file = file;
        target.put(b"3\n").expect("it never fails");
        assert_eq!(target.dropped.load(Ordering::Relaxed), 1);
        assert_eq!(fs::read_to_string(&path).expect("a log"), "1\n3\n");
        target.file.write_all(b"{\"ha").expect("written");
        target.take_back(4).expect("shortened");
        assert_eq!(fs::read_to_string(&path).expect("a log"), "1\n3\n");
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
