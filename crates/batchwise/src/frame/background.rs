//! Writing that never holds up a loop: a thread of its own writes, and what finds no room is dropped
//! whole, counted and said. Standard output, the terminal and logs go through it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that may wait.
const ROOM: usize = 16 << 20;
/// At the end, what waits has so long.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where the thread writes to.
pub trait Target: Send + 'static {
    /// Writes a text whole. After an error nothing more is written.
    ///
    /// # Errors
    /// It is gone for good.
    fn put(&mut self, text: &[u8]) -> io::Result<()>;

    /// Opens it anew, if it is a file.
    fn reopen(&mut self) {}
}

impl<W: Write + Send + 'static> Target for W {
    fn put(&mut self, text: &[u8]) -> io::Result<()> {
        self.write_all(text).and_then(|()| self.flush())
    }
}

enum Job {
    Text(Vec<u8>),
    Reopen,
    #[cfg(test)]
    Flush(Sender<()>),
}

/// Takes each text at once, and whole or not at all.
pub struct BackgroundWriter {
    name: &'static str,
    jobs: Option<Sender<Job>>,
    waiting: Arc<AtomicUsize>,
    failed: Arc<Mutex<Option<io::Error>>>,
    ended: Receiver<()>,
    dropped: u64,
    said: u64,
}

impl BackgroundWriter {
    /// Writes to `target`, which messages call `name`.
    pub fn new(name: &'static str, mut target: impl Target) -> Self {
        let (jobs, todo) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(Mutex::new(None));
        let (room, failure) = (Arc::clone(&waiting), Arc::clone(&failed));
        thread::spawn(move || {
            for job in todo {
                match job {
                    Job::Text(text) => {
                        let written = target.put(&text);
                        room.fetch_sub(text.len(), Ordering::Relaxed);
                        if let Err(error) = written {
                            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            break;
                        }
                    }
                    Job::Reopen => target.reopen(),
                    #[cfg(test)]
                    Job::Flush(done) => done.send(()).expect("somebody waits"),
                }
            }
            // nobody may be left to hear it
            let _ = end.send(());
        });
        Self {
            name,
            jobs: Some(jobs),
            waiting,
            failed,
            ended,
            dropped: 0,
            said: 0,
        }
    }

    /// Writes a text, or drops it.
    ///
    /// # Errors
    /// Nothing can be written any more.
    pub fn write(&mut self, text: Vec<u8>) -> io::Result<()> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        // one that is larger than the room goes when nothing else waits
        if waiting > 0 && waiting + text.len() > ROOM {
            if self.dropped == self.said {
                tracing::warn!("{} takes nothing: what comes now is dropped", self.name);
            }
            self.dropped += 1;
            return Ok(());
        }
        if self.dropped > self.said {
            let dropped = self.dropped - self.said;
            tracing::warn!("{} takes text again; {dropped} were dropped", self.name);
            self.said = self.dropped;
        }
        self.waiting.fetch_add(text.len(), Ordering::Relaxed);
        if self.send(Job::Text(text)) {
            return Ok(());
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let error = failed.take();
        Err(error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    /// Whether all that came has been written.
    pub fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Opens the target anew, after what waits.
    pub fn reopen(&self) {
        self.send(Job::Reopen);
    }

    /// Waits until everything is written.
    #[cfg(test)]
    pub fn flush(&self) {
        let (done, all) = mpsc::channel();
        assert!(self.send(Job::Flush(done)), "the thread is there");
        all.recv().expect("it is written");
    }

    /// Texts that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn send(&self, job: Job) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.jobs = None;
        if self.ended.recv_timeout(LAST_WORDS).is_err() {
            tracing::warn!("{} takes nothing: the end of it is lost", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn read_all(mut reader: io::PipeReader) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).expect("a pipe");
            read
        })
    }

    #[test]
    fn nothing_is_lost_when_the_reader_is_late() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut out = BackgroundWriter::new("a pipe", writer);
        let text = vec![b'x'; 4 << 20]; // more than a pipe takes
        assert!(out.is_idle());
        out.write(text.clone()).expect("taken");
        assert!(!out.is_idle());
        out.write(b"last".to_vec()).expect("taken");
        let read = read_all(reader);
        drop(out);
        let read = read.join().expect("no panic");
        assert_eq!(read, [&text[..], b"last"].concat());
    }

    #[test]
    fn who_writes_goes_on_when_nobody_reads_and_texts_are_dropped_whole() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut out = BackgroundWriter::new("a pipe", writer);
        let text = vec![b'x'; ROOM / 2];
        for _ in 0..4 {
            out.write(text.clone()).expect("taken or dropped");
        }
        assert_eq!(out.dropped(), 2);
        let read = read_all(reader);
        drop(out);
        assert_eq!(read.join().expect("no panic").len(), 2 * text.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error_at_a_later_text() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut out = BackgroundWriter::new("a pipe", writer);
        let error = loop {
            match out.write(b"text".to_vec()) {
                Ok(()) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
