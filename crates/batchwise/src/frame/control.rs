//! The control socket: one JSON request a connection, one answer. The agent's side reads in a thread
//! of its own and lets the agent's loop answer; the other side is a subcommand's.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request is at most this long.
const LONGEST: usize = 4096;
/// So much of what follows a request is read, and thrown away.
const LEFTOVER: usize = 1 << 16;
/// Whoever connects must have asked by then.
const PATIENCE: Duration = Duration::from_secs(2);
/// The agent must have answered by then.
const ANSWER: Duration = Duration::from_secs(20);
/// Sockets and locks are their owner's only.
const OWNERS: u32 = 0o600;
/// Where sockets are, unless the environment says otherwise.
const RUN_DIR: &str = "/run/batchwise";

/// What can be asked for: one line of JSON.
pub trait Request: Serialize + DeserializeOwned + Send + 'static {
    /// How to ask, for those who asked otherwise.
    const USAGE: &'static str;
}

/// What is answered, where the answer is not lines of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub ok: bool,
    pub detail: String,
}

/// A request that waits for its answer.
pub struct Asked<R> {
    pub request: R,
    reply: Sender<String>,
    served: Receiver<()>,
    asker: UnixStream,
    until: Instant,
}

impl<R> Asked<R> {
    /// Whoever asked still waits. Else it has been told that it failed: it must not be done.
    fn is_waited_for(&self) -> bool {
        let mut fds = [PollFd::new(self.asker.as_fd(), PollFlags::empty())];
        let left = poll(&mut fds, PollTimeout::ZERO) != Ok(0);
        !left && Instant::now() < self.until
    }

    /// Answers with text that is JSON lines already.
    pub fn lines(self, text: String) {
        // whoever asked may have left
        let _ = self.reply.send(text);
    }

    pub fn answer(self, done: Result<String, String>) {
        self.lines(answer(done));
    }

    /// Answers, and waits until whoever asked has it: for a process that ends.
    pub fn answer_last(self, done: Result<String, String>) {
        // whoever asked may have left
        let _ = self.reply.send(answer(done));
        // nothing is ever sent: it ends with the connection
        let _ = self.served.recv_timeout(PATIENCE);
    }
}

fn answer(done: Result<String, String>) -> String {
    let answer = match done {
        Ok(detail) => Answer { ok: true, detail },
        Err(detail) => Answer { ok: false, detail },
    };
    // strings and a flag: that is always JSON
    serde_json::to_string(&answer).unwrap_or_default() + "\n"
}

/// Where an agent of this name listens.
pub fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.sock"))
}

fn folder() -> PathBuf {
    std::env::var_os("BATCHWISE_RUN_DIR").map_or_else(|| PathBuf::from(RUN_DIR), PathBuf::from)
}

/// The folder of sockets and locks, made if it is not there.
pub fn run_folder(of: &str) -> anyhow::Result<PathBuf> {
    let folder = folder();
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder);
    made.with_context(|| {
        format!(
            "cannot make {} for {of}: run as root, or set BATCHWISE_RUN_DIR",
            folder.display()
        )
    })?;
    Ok(folder)
}

/// Listens until it is dropped; meanwhile no other agent of the name can.
pub struct Server<R> {
    path: PathBuf,
    requests: Receiver<Asked<R>>,
    _lock: Flock<File>,
}

impl<R: Request> Server<R> {
    /// Listens for requests to the agent of this name; `None`: another agent does.
    pub fn start(name: &str) -> anyhow::Result<Option<Self>> {
        let folder = run_folder("the control socket")?;
        let Some(lock) = lock(&folder.join(format!("{name}.lock")))? else {
            return Ok(None);
        };
        let path = path(name);
        // a killed agent's
        let _ = fs::remove_file(&path);
        // nobody else can connect before its mode could be changed
        let before = umask(Mode::from_bits_truncate(!OWNERS & 0o777));
        let listener = UnixListener::bind(&path);
        umask(before);
        let listener = listener.with_context(|| format!("cannot listen at {}", path.display()))?;
        let (tell, requests) = channel();
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    match stream {
                        Ok(stream) => {
                            if let Err(error) = serve(stream, &tell) {
                                tracing::debug!(%error, "a control connection");
                            }
                        }
                        Err(error) => {
                            tracing::warn!("the control socket: {error}");
                            std::thread::sleep(PATIENCE);
                        }
                    }
                }
            })
            .context("starting the control thread")?;
        Ok(Some(Self {
            path,
            requests,
            _lock: lock,
        }))
    }

    /// Requests since the last call whose askers wait for an answer.
    pub fn requests(&self) -> impl Iterator<Item = Asked<R>> + '_ {
        self.requests.try_iter().filter(Asked::is_waited_for)
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        // the next agent removes what is left
        let _ = fs::remove_file(&self.path);
    }
}

/// `None`: another process has it.
pub fn lock(path: &Path) -> anyhow::Result<Option<Flock<File>>> {
    let name = path.display();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(OWNERS)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .with_context(|| format!("cannot open {name}: run as root, or set BATCHWISE_RUN_DIR"))?;
    // whoever can read it can lock it (flock(2)), and keep every agent from starting
    file.set_permissions(fs::Permissions::from_mode(OWNERS))
        .with_context(|| format!("cannot restrict {name} to its owner"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("cannot lock {name}")),
    }
}

/// Answers one request.
pub fn serve<R: Request>(mut stream: UnixStream, tell: &Sender<Asked<R>>) -> io::Result<()> {
    let (_serving, served) = channel();
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = match read_line(&mut stream) {
        Ok(line) => parse(&line),
        Err(error) => Err(error.to_string()),
    };
    let text = match request {
        Err(why) => answer(Err(why)),
        Ok(request) => {
            let (reply, replied) = channel();
            let asked = Asked {
                request,
                reply,
                served,
                asker: stream.try_clone()?,
                until: Instant::now() + ANSWER,
            };
            let gone = || answer(Err("the agent is about to end".to_owned()));
            match tell.send(asked) {
                Ok(()) => replied.recv_timeout(ANSWER).unwrap_or_else(|_| gone()),
                Err(_) => gone(),
            }
        }
    };
    stream.write_all(text.as_bytes())?;
    // closing with anything unread would reset the connection, and the answer would be lost
    stream.shutdown(Shutdown::Write)?;
    let (end, mut part) = (Instant::now() + PATIENCE, [0; 4096]);
    let mut left = LEFTOVER;
    while left > 0 {
        match read_until(&mut stream, &mut part, end)? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}

fn read_until(stream: &mut UnixStream, part: &mut [u8], end: Instant) -> io::Result<usize> {
    let late = || io::Error::other("no request came in time");
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    stream.set_read_timeout(Some(left))?;
    match stream.read(part) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(late()),
        read => read,
    }
}

fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut part = [0; 512];
    loop {
        if let Some(at) = line.iter().position(|b| *b == b'\n') {
            line.truncate(at);
            return Ok(line);
        }
        if line.len() > LONGEST {
            return Err(io::Error::other(format!(
                "a request is at most {LONGEST} bytes"
            )));
        }
        match read_until(stream, &mut part, end)? {
            0 => return Ok(line),
            n => line.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
}

pub fn parse<R: Request>(line: &[u8]) -> Result<R, String> {
    serde_json::from_slice(line).map_err(|e| format!("not a request ({e}): {}", R::USAGE))
}

/// Whether an agent of this name listens.
pub fn runs(name: &str) -> bool {
    UnixStream::connect(path(name)).is_ok()
}

/// Asks the agent of this name; gives its whole answer. `no_agent` says what to do where none runs.
pub fn ask(
    name: &str,
    request: &impl Request,
    no_agent: impl FnOnce(&Path, &io::Error) -> anyhow::Error,
) -> anyhow::Result<String> {
    let path = path(name);
    let mut stream = UnixStream::connect(&path).map_err(|error| no_agent(&path, &error))?;
    stream.set_read_timeout(Some(ANSWER + PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).with_context(|| {
        format!(
            "the agent at {} does not answer, and what it was asked for is dropped",
            path.display()
        )
    })?;
    match serde_json::from_str::<Answer>(text.trim_end()) {
        Ok(answer) if !answer.ok => bail!("{}", answer.detail),
        Ok(answer) => Ok(answer.detail),
        Err(_) if text.is_empty() => bail!("the agent at {} has ended", path.display()),
        Err(_) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
    enum Do {
        Status,
        Drain { backend: String },
    }

    impl Request for Do {
        const USAGE: &'static str = "ask for status or drain";
    }

    /// What the server's side answers to these bytes, from an agent that says yes to all.
    fn answer_to(bytes: &[u8]) -> String {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (tell, asked) = channel::<Asked<Do>>();
        let agent = std::thread::spawn(move || {
            for asked in asked {
                let said = format!("{:?}", asked.request);
                asked.answer(Ok(said));
            }
        });
        ours.write_all(bytes).expect("room");
        ours.shutdown(Shutdown::Write).expect("half closed");
        serve(theirs, &tell).expect("served");
        drop(tell);
        agent.join().expect("no panic");
        let mut text = String::new();
        ours.read_to_string(&mut text).expect("an answer");
        text
    }

    fn refused(bytes: &[u8]) -> String {
        let text = answer_to(bytes);
        let answer: Answer = serde_json::from_str(&text).expect("an answer");
        assert!(!answer.ok, "{text}");
        answer.detail
    }

    #[test]
    fn a_request_is_a_line_of_json_and_so_is_its_answer() {
        let text = answer_to(b"{\"command\":\"drain\",\"backend\":\"s1\"}\nignored");
        let answer: Answer = serde_json::from_str(&text).expect("an answer");
        assert!(answer.ok);
        assert!(answer.detail.contains("backend: \"s1\""), "{text}");
    }

    #[test]
    fn odd_input_is_refused_with_what_can_be_asked() {
        for odd in [
            &b""[..],
            b"\n",
            b"status\n",
            b"{\"command\":\"fly\"}\n",
            b"{\"command\":\"drain\"}\n",
            b"\xff\xfe\x00\n",
            b"[[[[[[\n",
        ] {
            assert!(refused(odd).contains(Do::USAGE), "{odd:?}");
        }
    }

    #[test]
    fn a_request_that_does_not_end_is_not_read_for_ever() {
        let detail = refused(&vec![b'x'; 3 * LONGEST]);
        assert!(detail.contains("at most 4096 bytes"), "{detail}");
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_done() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (tell, asked) = channel::<Asked<Do>>();
        let server = std::thread::spawn(move || serve(theirs, &tell));
        ours.write_all(b"{\"command\":\"status\"}\n").expect("room");
        let asked = asked.recv().expect("a request");
        ours.shutdown(Shutdown::Write).expect("half closed");
        assert!(asked.is_waited_for());
        drop(ours);
        assert!(!asked.is_waited_for());
        drop(asked);
        // the connection is gone
        let _ = server.join().expect("no panic");
    }

    #[test]
    fn a_lock_is_had_once_and_not_through_a_symbolic_link() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("a.lock");
        let first = lock(&path).expect("it can be made");
        assert!(first.is_some() && lock(&path).expect("it is there").is_none());
        let link = folder.path().join("b.lock");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(lock(&link).is_err());
    }
}
