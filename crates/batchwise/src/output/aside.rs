//! Standard output of a program that goes on with its work when nobody reads (a full pipe, a stopped
//! pager): a thread of its own writes, and what does not fit is lost, which is said.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::pipe::Watched;

/// Bytes that may wait for a reader.
const ROOM: usize = 16 << 20;
/// At the end, what waits has so long.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Takes each text at once, and whole or not at all.
pub struct Aside {
    texts: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    failed: Arc<Mutex<Option<io::Error>>>,
    ended: Receiver<()>,
    lost: u64,
}

impl Aside {
    /// Writes to standard output.
    pub fn stdout() -> Self {
        Self::to(io::stdout())
    }

    fn to(mut out: impl Write + Send + 'static) -> Self {
        let (texts, written) = mpsc::channel::<Vec<u8>>();
        let (end, ended) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(Mutex::new(None));
        let (room, failure) = (Arc::clone(&waiting), Arc::clone(&failed));
        thread::spawn(move || {
            for text in written {
                if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    break;
                }
                room.fetch_sub(text.len(), Ordering::Relaxed);
            }
            // nobody may be left to hear it
            let _ = end.send(());
        });
        Self {
            texts: Some(texts),
            waiting,
            failed,
            ended,
            lost: 0,
        }
    }

    fn failure(&self) -> io::Error {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .take()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Aside {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        // one that is larger than the room goes when nothing else waits
        if waiting > 0 && waiting + text.len() > ROOM {
            if self.lost == 0 {
                tracing::warn!("standard output is not read: what it should get now is lost");
            }
            self.lost += 1;
            return Ok(text.len());
        }
        if self.lost > 0 {
            tracing::warn!(
                "standard output is read again; {} texts are lost",
                self.lost
            );
            self.lost = 0;
        }
        self.waiting.fetch_add(text.len(), Ordering::Relaxed);
        let sent = self.texts.as_ref().map(|texts| texts.send(text.to_vec()));
        match sent {
            Some(Ok(())) => Ok(text.len()),
            _ => Err(self.failure()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Watched for Aside {
    fn closed_within(&self, timeout: Duration) -> anyhow::Result<bool> {
        io::stdout().closed_within(timeout)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.texts = None;
        if self.ended.recv_timeout(LAST_WORDS).is_err() {
            tracing::warn!("standard output is not read: the end of it is lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn nothing_is_lost_when_the_reader_is_late() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut aside = Aside::to(writer);
        let text = vec![b'x'; 4 << 20]; // more than a pipe takes
        aside.write_all(&text).expect("taken");
        aside.write_all(b"last").expect("taken");
        let read = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        drop(aside);
        let read = read.join().expect("no panic").expect("a pipe");
        assert_eq!(read, [&text[..], b"last"].concat());
    }

    #[test]
    fn who_writes_goes_on_when_nobody_reads_and_texts_are_lost_whole() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut aside = Aside::to(writer);
        let text = vec![b'x'; ROOM / 2];
        for _ in 0..4 {
            aside.write_all(&text).expect("taken or lost");
        }
        assert_eq!(aside.lost, 2);
        let read = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read.len())
        });
        drop(aside);
        let read = read.join().expect("no panic").expect("a pipe");
        assert_eq!(read, 2 * text.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_told_at_a_later_text() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut aside = Aside::to(writer);
        let error = loop {
            match aside.write_all(b"text") {
                Ok(()) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
