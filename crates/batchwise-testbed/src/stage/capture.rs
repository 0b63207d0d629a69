//! What is on the wire between the hosts: a capture by tcpdump at the client, and its TCP segments.

use std::fs::File;
use std::process::Command;

use batchwise_core::sense::wire::{KIND, LEN, Tuple};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use nix::sys::signal::{Signal, kill};
use pcap_file::pcap::PcapReader;
use tempfile::TempDir;

use super::{PATIENCE, Stage, eventually};
use crate::host::Role;
use crate::process::Process;
use crate::stop::Stop;
use crate::topology::LINK;

/// Kind of the SACK option.
const SACK: u8 = 5;
/// Kind of the timestamps option.
const TIMESTAMPS: u8 = 8;

/// A TCP segment over IPv4.
pub struct Segment {
    /// Capture time, ns since the Unix epoch.
    pub at_ns: u64,
    /// Whether the server sent it.
    pub from_server: bool,
    /// The client's port.
    pub client_port: u16,
    /// Whether it begins a connection.
    pub syn: bool,
    /// Length of the IP packet, bytes.
    pub ip_length: u16,
    /// Bytes of payload.
    pub payload: usize,
    /// TCP options, kind and length included, without padding.
    pub options: Vec<Vec<u8>>,
}

impl Segment {
    /// The exchange's options, whatever their length.
    pub fn ours(&self) -> Vec<&[u8]> {
        let ours = self.options.iter().filter(|o| o[0] == KIND);
        ours.map(Vec::as_slice).collect()
    }

    /// The queue that it carries.
    pub fn tuple(&self) -> Option<Tuple> {
        let option: &[u8; LEN] = (*self.ours().first()?).try_into().ok()?;
        Tuple::decode(option)
    }

    /// Whether it has timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.options.iter().any(|o| o[0] == TIMESTAMPS)
    }

    /// Whether it has a SACK option.
    pub fn has_sack(&self) -> bool {
        self.sack() > 0
    }

    /// Bytes of the SACK option, with the two in front that align it.
    pub fn sack(&self) -> usize {
        let sack = self.options.iter().filter(|o| o[0] == SACK);
        sack.map(|o| 2 + o.len()).sum()
    }
}

/// A running tcpdump.
pub struct Capture {
    tcpdump: Process,
    folder: TempDir,
    port: u16,
}

impl Capture {
    /// Begins to capture the TCP segments of `port`; offloads are switched off for good, so that
    /// what is captured is what a wire would carry.
    pub fn start(stage: &Stage, port: u16) -> Self {
        for host in [&stage.hosts.server, &stage.hosts.client] {
            let off = host
                .namespace()
                .set_offloads(LINK, &["tso", "gso", "gro"], false);
            off.expect("offloads switched off");
        }
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("pcap");
        let mut command = Command::new("tcpdump");
        command.args(["-i", LINK, "-n", "-U", "-B", "16384"]);
        command.args(["-Z", "root", "-w"]).arg(&file);
        command.arg(format!("tcp port {port}"));
        let tcpdump = stage
            .hosts
            .client
            .spawn("tcpdump", command, Role::Observer)
            .expect("tcpdump is needed (Debian: apt install tcpdump)");
        // the file's header is written once it listens
        eventually(
            "tcpdump to listen",
            || file.metadata().is_ok_and(|m| m.len() > 0).then_some(()),
            || tcpdump.quote(),
        );
        Self {
            tcpdump,
            folder,
            port,
        }
    }

    /// Ends it; gives what it saw, in order.
    pub fn finish(mut self) -> Vec<Segment> {
        kill(self.tcpdump.pid(), Signal::SIGINT).expect("tcpdump is there");
        let status = self.tcpdump.wait(&Stop::default(), PATIENCE);
        assert!(status.expect("tcpdump ends").success());
        let file = File::open(self.folder.path().join("pcap")).expect("the capture");
        let mut reader = PcapReader::new(file).expect("a capture");
        let mut segments = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a packet");
            segments.extend(parse(&packet.data, packet.timestamp.as_nanos(), self.port));
        }
        segments
    }
}

fn parse(frame: &[u8], at_ns: u128, server_port: u16) -> Option<Segment> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (Some(LaxNetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
        (packet.net, packet.transport)
    else {
        return None;
    };
    let from_server = tcp.source_port() == server_port;
    let ip_length = ip.header().total_len();
    let headers = ip.header().slice().len() + tcp.header_slice().len();
    Some(Segment {
        at_ns: u64::try_from(at_ns).ok()?,
        from_server,
        client_port: if from_server {
            tcp.destination_port()
        } else {
            tcp.source_port()
        },
        syn: tcp.syn(),
        ip_length,
        payload: usize::from(ip_length) - headers,
        options: split_options(tcp.options()),
    })
}

/// RFC 9293: a list of kind, length, value; kind 1 is padding and 0 the end.
fn split_options(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut options = Vec::new();
    while let Some((&kind, tail)) = rest.split_first() {
        match kind {
            0 => break,
            1 => rest = tail,
            _ => {
                let length = usize::from(tail[0]);
                let (option, tail) = rest.split_at(length);
                options.push(option.to_vec());
                rest = tail;
            }
        }
    }
    options
}
