//! The control socket: one JSON request a connection, one answer. The agent's side reads in a
//! thread of its own and lets the agent's loop answer; the other side is the subcommands'.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use serde::{Deserialize, Serialize};

/// A request is at most this long.
const LONGEST: usize = 4096;
/// So much of what follows a request is read, and thrown away.
const LEFTOVER: u64 = 1 << 16;
/// Whoever connects must have asked by then.
const PATIENCE: Duration = Duration::from_secs(2);
/// The agent must have answered by then.
const ANSWER: Duration = Duration::from_secs(20);
/// Sockets and locks are their owner's only.
const OWNERS: u32 = 0o600;
/// Where sockets are, unless the environment says otherwise.
const RUN_DIR: &str = "/run/batchwise";

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The status, in several lines.
    Status,
    /// No new connections for a backend, or again.
    Drain {
        /// Its name.
        backend: String,
        /// Its service, where more than one has a backend of this name.
        service: Option<String>,
        /// Again.
        #[serde(default)]
        undo: bool,
    },
    /// Read the configuration again.
    Reload,
    /// Forward no more, leave nothing, and end.
    Remove,
}

/// What is answered; of `status` only when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// It was done.
    pub ok: bool,
    /// What was done, or why not.
    pub detail: String,
}

/// A request that waits for its answer.
pub struct Asked {
    /// What for.
    pub request: Request,
    reply: Sender<String>,
    served: Receiver<()>,
}

impl Asked {
    /// Answers with text that is JSON lines already.
    pub fn lines(self, text: String) {
        // whoever asked may have left
        let _ = self.reply.send(text);
    }

    /// Answers.
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

/// Where the balancer of this name listens.
pub fn path(name: &str) -> PathBuf {
    folder().join(format!("balance-{name}.sock"))
}

fn folder() -> PathBuf {
    std::env::var_os("BATCHWISE_RUN_DIR").map_or_else(|| PathBuf::from(RUN_DIR), PathBuf::from)
}

/// Listens until it is dropped; meanwhile no other agent of the name can.
pub struct Server {
    path: PathBuf,
    requests: Receiver<Asked>,
    _lock: Flock<File>,
}

impl Server {
    /// Listens for requests to the balancer of this name.
    ///
    /// # Errors
    /// Another agent does, or the socket cannot be made.
    pub fn start(name: &str) -> anyhow::Result<Self> {
        let folder = folder();
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&folder)
            .with_context(|| {
                format!(
                    "cannot make {} for the control socket: run as root, or set BATCHWISE_RUN_DIR",
                    folder.display()
                )
            })?;
        let lock = folder.join(format!("balance-{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(OWNERS)
            .open(&lock)
            .with_context(|| format!("cannot open {}", lock.display()))?;
        // whoever can read it can lock it (flock(2)), and keep every agent from starting
        file.set_permissions(fs::Permissions::from_mode(OWNERS))
            .with_context(|| format!("cannot restrict {} to its owner", lock.display()))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            anyhow!(
                "another agent runs the balancer {name:?}: stop it first, or give this one another \
                 `name` in its configuration"
            )
        })?;
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
        Ok(Self {
            path,
            requests,
            _lock: lock,
        })
    }

    /// Requests since the last call.
    pub fn requests(&self) -> impl Iterator<Item = Asked> + '_ {
        self.requests.try_iter()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // the next agent removes what is left
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(mut stream: UnixStream, tell: &Sender<Asked>) -> io::Result<()> {
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
    stream.set_read_timeout(Some(PATIENCE))?;
    io::copy(&mut stream.take(LEFTOVER), &mut io::sink())?;
    Ok(())
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
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other("no request came in time"));
        }
        if line.len() > LONGEST {
            return Err(io::Error::other(format!(
                "a request is at most {LONGEST} bytes"
            )));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(line),
            n => line.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
}

fn parse(line: &[u8]) -> Result<Request, String> {
    serde_json::from_slice(line).map_err(|e| {
        format!(
            "not a request ({e}): send one line of JSON, such as {{\"command\":\"status\"}}; there are \
             status, drain, reload and remove"
        )
    })
}

/// Whether an agent of the balancer of this name listens.
pub fn runs(name: &str) -> bool {
    UnixStream::connect(path(name)).is_ok()
}

/// Asks the agent; gives its whole answer.
///
/// # Errors
/// None runs, it does not answer, or it says that it could not.
pub fn ask(name: &str, request: &Request) -> anyhow::Result<String> {
    let path = path(name);
    let mut stream = UnixStream::connect(&path).map_err(|error| no_agent(name, &path, &error))?;
    stream.set_read_timeout(Some(ANSWER + PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .with_context(|| format!("the agent at {} does not answer", path.display()))?;
    match serde_json::from_str::<Answer>(text.trim_end()) {
        Ok(answer) if !answer.ok => bail!("{}", answer.detail),
        Ok(answer) => Ok(answer.detail),
        Err(_) if text.is_empty() => bail!("the agent at {} has ended", path.display()),
        Err(_) => Ok(text),
    }
}

fn no_agent(name: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = if error.kind() == io::ErrorKind::PermissionDenied {
        "run as root".to_owned()
    } else if batchwise_bpf::balance::Balancer::pinned(name) {
        format!(
            "its packets are still forwarded; start the agent again with `batchwise balance --config FILE`, \
             or end the forwarding with `batchwise balance remove --name {name}`"
        )
    } else {
        "start it with `batchwise balance --config FILE`, or give its name with --name".to_owned()
    };
    anyhow!(
        "no agent of the balancer {name:?} answers at {} ({error}): {remedy}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the server's side answers to these bytes, from an agent that says yes to all.
    fn answer_to(bytes: &[u8]) -> String {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (tell, asked) = channel::<Asked>();
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
        assert!(answer.detail.contains("undo: false"), "{text}");
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
            assert!(refused(odd).contains("status, drain, reload"), "{odd:?}");
        }
    }

    #[test]
    fn a_request_that_does_not_end_is_not_read_for_ever() {
        let detail = refused(&vec![b'x'; 3 * LONGEST]);
        assert!(detail.contains("at most 4096 bytes"), "{detail}");
    }
}
