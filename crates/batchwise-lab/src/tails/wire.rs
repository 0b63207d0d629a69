//! What is true at the server, from a capture at its own link: from the packet with a request's last
//! byte to the packet with its response's first. Which response is whose follows from the lengths of
//! requests and replies alone, in the order of the streams.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::redis::PORT;
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;

/// Segments with data; acknowledgments alone would only cost time.
pub fn filter(port: u16) -> String {
    let data = "(ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2)) != 0";
    format!("tcp port {port} and {data}")
}

/// tcpdump is given packets in blocks, which wait so long at most.
pub const FLUSH: Duration = Duration::from_secs(1);

/// `PING` and its answer, which each connection of the generator begins with.
const GREETING: [u64; 2] = [6, 7];
/// Bytes in a key of the generator's.
const KEY: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    Get,
}

/// A segment with data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet {
    /// ns since the Unix epoch.
    pub at_ns: u64,
    pub from_server: bool,
    pub sequence: u32,
    /// Bytes of data.
    pub length: u32,
    /// The request that it begins with.
    pub begins: Option<Kind>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// When its response left, ns since the Unix epoch.
    pub at_ns: u64,
    pub latency_ns: u64,
}

/// Bytes of the requests and replies of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    set: u64,
    get: u64,
    value: u64,
}

impl Sizes {
    /// In Redis's protocol.
    pub fn of(value_size: u32) -> Self {
        let string = |length: u64| 1 + length.to_string().len() as u64 + 2 + length + 2;
        let name = string(3);
        let value = string(value_size.into());
        Self {
            set: 4 + name + string(KEY) + value,
            get: 4 + name + string(KEY),
            value,
        }
    }

    fn request(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Set => self.set,
            Kind::Get => self.get,
        }
    }

    fn reply(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Set => "+OK\r\n".len() as u64,
            Kind::Get => self.value,
        }
    }
}

/// Up to where a direction's stream had come, and when.
pub type Progress = Vec<(u64, u64)>;

/// The progress of one direction, and where in it packets begin with a request; `None` where a
/// packet is missing. They may come out of order: a veth has no queue of its own.
pub fn follow(packets: &[Packet], from_server: bool) -> Option<(Progress, BTreeMap<u64, Kind>)> {
    let own = || packets.iter().filter(|p| p.from_server == from_server);
    let first = own().next()?.sequence;
    let (mut progress, mut begins, mut end) = (Vec::new(), BTreeMap::new(), 0u64);
    let mut early: BTreeMap<u64, u64> = BTreeMap::new();
    for packet in own() {
        let next = first.wrapping_add(end as u32);
        let ahead = packet.sequence.wrapping_sub(next).cast_signed();
        let begin = end.saturating_add_signed(ahead.into());
        let upto = begin + u64::from(packet.length);
        if upto <= end {
            continue;
        }
        begins.extend(packet.begins.map(|kind| (begin, kind)));
        early
            .entry(begin)
            .and_modify(|to| *to = upto.max(*to))
            .or_insert(upto);
        let before = end;
        while let Some(next) = early.first_entry().filter(|next| *next.key() <= end) {
            end = end.max(next.remove());
        }
        if end > before {
            progress.push((end, packet.at_ns));
        }
    }
    early.is_empty().then_some((progress, begins))
}

/// The requests in order, as far as the packets that begin with one tell. Between two such packets the
/// bytes tell how many of each kind there were; their order is taken to be SETs first.
fn requests(begins: &BTreeMap<u64, Kind>, sizes: &Sizes) -> Option<Vec<Kind>> {
    let mut found = Vec::new();
    for ((&from, &kind), (&to, _)) in begins.iter().zip(begins.iter().skip(1)) {
        let rest = (to - from).checked_sub(sizes.request(kind))?;
        let fits = |gets: &u64| (rest - gets * sizes.get).is_multiple_of(sizes.set);
        let most = (sizes.set / sizes.get).min(rest / sizes.get);
        let gets = (0..=most).find(fits)?;
        let sets = (rest - gets * sizes.get) / sizes.set;
        found.push(kind);
        found.extend((0..sets).map(|_| Kind::Set));
        found.extend((0..gets).map(|_| Kind::Get));
    }
    Some(found)
}

/// All requests of a connection that were answered; `None` where the packets do not tell.
pub fn answered(packets: &[Packet], sizes: &Sizes) -> Option<Vec<Answered>> {
    let (arrivals, begins) = follow(packets, false)?;
    let (responses, _) = follow(packets, true)?;
    let (mut arrivals, mut responses) = (arrivals.iter(), responses.iter());
    let (mut arrived, mut responded) = (arrivals.next()?, responses.next()?);
    let [mut asked, mut replied] = GREETING;
    let mut found = Vec::new();
    for kind in requests(&begins, sizes)? {
        asked += sizes.request(kind);
        while arrived.0 < asked {
            arrived = arrivals.next()?;
        }
        while responded.0 <= replied {
            match responses.next() {
                Some(next) => responded = next,
                None => return Some(found),
            }
        }
        replied += sizes.reply(kind);
        found.push(Answered {
            at_ns: responded.1,
            latency_ns: responded.1.saturating_sub(arrived.1),
        });
    }
    Some(found)
}

/// The first connection in a capture: all its segments with data.
pub fn read(capture: &Path) -> Result<Vec<Packet>> {
    let (mut client, mut packets) = (None, Vec::new());
    each(capture, PORT, |port, packet| {
        if *client.get_or_insert(port) == port {
            packets.push(packet);
        }
    })?;
    Ok(packets)
}

/// Shows each segment with data, with its client's port, of connections to the server at this port.
pub fn each(capture: &Path, server: u16, mut show: impl FnMut(u16, Packet)) -> Result<()> {
    let reading = || format!("reading {}", capture.display());
    let file = BufReader::new(File::open(capture).with_context(reading)?);
    let mut reader = PcapReader::new(file).with_context(reading)?;
    // raw: else a packet that was longer than what is kept of it is an error; the last one may be cut
    while let Some(Ok(raw)) = reader.next_raw_packet() {
        let at_ns = u64::from(raw.ts_sec) * 1_000_000_000 + u64::from(raw.ts_frac);
        if let Some((port, packet)) = parse(&raw.data, server, at_ns) {
            show(port, packet);
        }
    }
    Ok(())
}

/// A frame, with the client's port.
fn parse(frame: &[u8], server: u16, at_ns: u64) -> Option<(u16, Packet)> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (Some(LaxNetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
        (packet.net, packet.transport)
    else {
        return None;
    };
    let from_server = tcp.source_port() == server;
    let headers = ip.header().slice().len() + tcp.header_slice().len();
    let begins = match tcp.payload() {
        [b'*', b'3', ..] => Some(Kind::Set),
        [b'*', b'2', ..] => Some(Kind::Get),
        _ => None,
    };
    let packet = Packet {
        at_ns,
        from_server,
        sequence: tcp.sequence_number(),
        length: u32::from(ip.header().total_len()).checked_sub(headers as u32)?,
        begins: begins.filter(|_| !from_server),
    };
    let port = match from_server {
        true => tcp.destination_port(),
        false => tcp.source_port(),
    };
    Some((port, packet))
}
