//! Text that goes to a file in whole pieces: a full disk drops pieces, counted and said, and writing
//! resumes by itself.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Lines {
    /// What messages call it.
    pub name: String,
    pub file: File,
    /// Pieces that were dropped.
    pub dropped: Arc<AtomicU64>,
    /// Those of them that have been spoken of.
    said: u64,
    /// The file ends amid a line.
    torn: bool,
}

impl Lines {
    pub fn new(name: String, file: File) -> Self {
        Self {
            name,
            file,
            dropped: Arc::default(),
            said: 0,
            torn: false,
        }
    }

    /// Writes a piece, which ends with a line's end, or drops it.
    ///
    /// # Errors
    /// It was dropped. That has been counted, and said unless its reader has left.
    pub fn put(&mut self, text: &[u8]) -> io::Result<()> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let result = self.append(text);
        let name = &self.name;
        match &result {
            Ok(()) if dropped > self.said => {
                let pieces = dropped - self.said;
                tracing::warn!("{name} can be written again; {pieces} lines were dropped");
                self.said = dropped;
            }
            Ok(()) => {}
            Err(error) => {
                if dropped == self.said && error.kind() != io::ErrorKind::BrokenPipe {
                    tracing::warn!(
                        "{name} cannot be written ({error}): lines are dropped until it can"
                    );
                }
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        result
    }

    /// Goes on in another file.
    pub fn go_on_in(&mut self, file: File) {
        (self.file, self.torn) = (file, false);
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut written = 0;
        while written < text.len() {
            match self.file.write(&text[written..]) {
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

    /// Half a line is no JSON. What others wrote after it stays.
    fn take_back(&mut self, written: usize) -> io::Result<()> {
        let end = self.file.stream_position()?;
        if self.file.metadata()?.len() != end {
            return Err(io::ErrorKind::Other.into());
        }
        let begin = end.saturating_sub(written as u64);
        self.file.set_len(begin)?;
        self.file.seek(SeekFrom::Start(begin)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn it_resumes_when_there_is_room_again_and_holds_whole_lines_only() {
        for append in [true, false] {
            let folder = TempDir::new().expect("a folder");
            let path = folder.path().join("lines");
            let mut options = File::options();
            let options = options.create(true).write(true).append(append);
            let file = options.truncate(!append).open(&path);
            let mut lines = Lines::new("lines".to_owned(), file.expect("a file"));
            lines.put(b"1\n").expect("there is room");
            let full = File::options().append(true).open("/dev/full");
            let file = std::mem::replace(&mut lines.file, full.expect("a full disk"));
            lines.put(b"2\n").expect_err("full");
            lines.file = file;
            lines.file.write_all(b"{\"ha").expect("written");
            lines.take_back(4).expect("shortened");
            lines.put(b"3\n").expect("there is room");
            assert_eq!(lines.dropped.load(Ordering::Relaxed), 1);
            assert_eq!(fs::read_to_string(&path).expect("a file"), "1\n3\n");
        }
    }

    #[test]
    fn what_others_wrote_into_the_same_file_is_not_taken_back() {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("lines");
        let open = || File::options().create(true).append(true).open(&path);
        let mut lines = Lines::new("lines".to_owned(), open().expect("a file"));
        lines.file.write_all(b"{\"ha").expect("written");
        let mut other = open().expect("a file");
        other.write_all(b"theirs\n").expect("written");
        lines.take_back(4).expect_err("it is no longer the end");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "{\"hatheirs\n");
    }
}
