//! What reads bytes that others wrote, each as a function of its own: for `batchwise-fuzz`, and no contract.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::mpsc::channel;

use anyhow::Context;
use batchwise_window::Ask;
use clap::Parser;
use nix::errno::Errno;
use pcap_file::DataLink;

use crate::balance::config::Config;
use crate::balance::control::{Asked, Request};
use crate::frame::{control, metrics};
use crate::hints::HintArgs;
use crate::passive::capture::{self, frame};
use crate::passive::{PassiveArgs, metrics::PassiveMetrics};
use crate::window::apps;
use crate::{Cli, Command, balance};

/// `passive --pcap` of a file with these bytes; its lines go to standard output.
pub fn capture(bytes: Vec<u8>) -> anyhow::Result<()> {
    static ARGS: LazyLock<Option<PassiveArgs>> = LazyLock::new(|| {
        let line = "batchwise passive --pcap - --per-flow --format jsonl";
        match Cli::parse_from(line.split(' ')).command {
            Command::Passive(args) => Some(args),
            _ => None,
        }
    });
    ARGS.as_ref()
        .map_or(Ok(()), |args| capture::read(args, bytes))
}

/// The segment or datagram that `passive --pcap` finds in a frame of Ethernet.
pub fn dissect(frame: &[u8]) -> Option<frame::Segment> {
    match frame::dissect(DataLink::ETHERNET, frame, frame.len() as u32) {
        frame::Frame::Segment(segment) => Some(segment),
        _ => None,
    }
}

/// A configuration of `balance`: what is doubtful in it, or what is wrong.
pub fn configuration(text: &str) -> anyhow::Result<Vec<String>> {
    let config = Config::parse(Path::new("lb.toml"), text)?;
    Ok(config
        .doubts()
        .into_iter()
        .map(|doubt| doubt.what)
        .collect())
}

/// The status in the head of a backend's answer to a health check.
pub fn health(head: &[u8]) -> Result<Option<u16>, String> {
    balance::attempt::status(head)
}

/// A line of the control socket.
pub fn request(line: &[u8]) -> Result<Request, String> {
    control::parse(line)
}

/// A connection to the control socket of an agent that is about to end.
pub fn control(stream: UnixStream) -> io::Result<()> {
    let (tell, _) = channel::<Asked>();
    control::serve(stream, &tell)
}

/// What a client of the metrics is answered.
pub fn metrics(bytes: &[u8]) -> io::Result<Vec<u8>> {
    metrics::http::answer_to::<PassiveMetrics>(bytes)
}

/// Listens for hints, and takes in what has come whenever it is called.
pub fn hints(path: &Path) -> anyhow::Result<impl FnMut() -> anyhow::Result<()> + use<>> {
    let args = HintArgs {
        socket: Some(path.to_owned()),
        uids: Vec::new(),
    };
    let mut hints = args.listen()?.context("they are wanted")?;
    Ok(move || hints.read(&[]).map(drop))
}

/// What `window` is asked, and the descriptors that came with it; `None`: the application has hung up.
pub fn window(from: BorrowedFd<'_>) -> Result<Option<(Ask, Vec<OwnedFd>)>, Errno> {
    apps::receive(from)
}

/// Whether `window` would register a socket.
pub fn window_check(socket: BorrowedFd<'_>, ask: &Ask) -> Result<(), Errno> {
    apps::check(socket, ask)
}
