//! Packets from capture files, pcap and pcapng, with times in nanoseconds. Whatever is in the file,
//! the answer is a packet or an error that says what to do.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

/// What is read where a file is expected.
const STANDARD_INPUT: &str = "-";

const RECAPTURE: &str = "what came before it is shown; capture again, or keep the readable part: \
                         tcpdump -r FILE -w FIXED";

/// A captured packet.
#[derive(Debug)]
pub struct Packet<'a> {
    /// ns since 1970.
    pub at_ns: u64,
    /// What its bytes begin with.
    pub link: DataLink,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Bytes that it had on the wire.
    pub length: u32,
}

/// A capture that is being read.
pub struct Capture {
    name: String,
    reader: Reader,
    /// Packets that were read.
    count: u64,
    data: Vec<u8>,
    stop: Arc<AtomicBool>,
}

enum Reader {
    // Both keep buffers of megabytes on the heap, and some state here.
    Pcap(Box<PcapReader<Box<dyn Read>>>),
    PcapNg(Box<PcapNgReader<Box<dyn Read>>>),
}

/// Time, link type and length of a packet whose bytes are in the buffer.
type Found = (u64, DataLink, u32);

impl Capture {
    /// Opens a file, or standard input if it is called `-`. When `stop` is set, the capture ends.
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        if name == STANDARD_INPUT {
            let input = Interruptible(Arc::clone(stop));
            return Self::read("standard input".to_owned(), Box::new(input), stop);
        }
        let file = File::open(path)
            .with_context(|| format!("cannot open the capture {name} (`-` is standard input)"))?;
        let kind = file.metadata().with_context(|| name.clone())?;
        ensure!(
            !kind.is_dir(),
            "{name} is a directory; give a capture, as `tcpdump -w FILE` writes it"
        );
        Self::read(name, Box::new(file), stop)
    }

    pub fn read(
        name: String,
        mut source: Box<dyn Read>,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let mut magic = Vec::new();
        source
            .by_ref()
            .take(4)
            .read_to_end(&mut magic)
            .with_context(|| format!("cannot read {name}"))?;
        ensure!(
            !stop.load(Ordering::Relaxed),
            "stopped before {name} brought anything"
        );
        ensure!(
            !magic.is_empty(),
            "{name} is empty; a capture begins with a header, as `tcpdump -w FILE` writes it"
        );
        let source: Box<dyn Read> = Box::new(io::Cursor::new(magic.clone()).chain(source));
        let head = |error| broken(&name, "its header", &error);
        let compressed = |with| anyhow!("{name} is compressed; unpack it first: {with} {name}");
        let reader = match magic[..] {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => {
                Reader::Pcap(Box::new(PcapReader::new(source).map_err(head)?))
            }
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                Reader::PcapNg(Box::new(PcapNgReader::new(source).map_err(head)?))
            }
            [0x1f, 0x8b, ..] => return Err(compressed("gunzip")),
            [0x28, 0xb5, 0x2f, 0xfd] => return Err(compressed("unzstd")),
            [0xfd, b'7', b'z', b'X'] => return Err(compressed("unxz")),
            _ => bail!(
                "{name} is no pcap or pcapng capture: it begins with {magic:02x?}; write one with \
                 `tcpdump -w FILE`, or convert it with `editcap -F pcapng`"
            ),
        };
        Ok(Self {
            name,
            reader,
            count: 0,
            data: Vec::new(),
            stop: Arc::clone(stop),
        })
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// The file is truncated or broken here; nothing can be read after that.
    pub fn next(&mut self) -> anyhow::Result<Option<Packet<'_>>> {
        let found = match &mut self.reader {
            Reader::Pcap(reader) => next_of_pcap(reader, &mut self.data),
            Reader::PcapNg(reader) => next_of_pcapng(reader, &mut self.data),
        };
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match found {
            Err(error) => {
                let place = format!("packet {}", self.count + 1);
                Err(broken(&self.name, &place, &error))
            }
            Ok(None) => Ok(None),
            Ok(Some((at_ns, link, length))) => {
                self.count += 1;
                Ok(Some(Packet {
                    at_ns,
                    link,
                    data: &self.data,
                    length,
                }))
            }
        }
    }

    /// The same words for what is wrong with the packet that was read last.
    pub fn complain(&self, what: &str) -> anyhow::Error {
        anyhow!("{}: packet {}: {what}", self.name, self.count)
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

fn broken(name: &str, place: &str, error: &PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            anyhow!("{name}: {place} cannot be read: {error}")
        }
        PcapError::IncompleteBuffer | PcapError::IoError(_) => anyhow!(
            "{name}: {place} is cut off (the file is truncated, or a length in it is wrong); \
             {RECAPTURE}"
        ),
        error => anyhow!("{name}: {place} is malformed ({error}); {RECAPTURE}"),
    }
}

fn next_of_pcap(
    reader: &mut PcapReader<Box<dyn Read>>,
    data: &mut Vec<u8>,
) -> Result<Option<Found>, PcapError> {
    let header = reader.header();
    let Some(packet) = reader.next_raw_packet() else {
        return Ok(None);
    };
    let packet = packet?;
    // Not the library's own checks: they refuse captures with a snap length, which is legal.
    let (unit, per_second) = match header.ts_resolution {
        TsResolution::MicroSecond => (1_000, 1_000_000),
        TsResolution::NanoSecond => (1, 1_000_000_000),
    };
    if packet.ts_frac >= per_second {
        return Err(PcapError::InvalidField("fraction of a second above one"));
    }
    if packet.incl_len > packet.orig_len {
        return Err(PcapError::InvalidField(
            "captured length above the original",
        ));
    }
    let at_ns = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * unit;
    data.clear();
    data.extend_from_slice(&packet.data);
    // The upper bits say how long a frame check sequence is.
    let link = DataLink::from(u32::from(header.datalink) & 0xffff);
    Ok(Some((at_ns, link, packet.orig_len)))
}

fn next_of_pcapng(
    reader: &mut PcapNgReader<Box<dyn Read>>,
    data: &mut Vec<u8>,
) -> Result<Option<Found>, PcapError> {
    loop {
        // Whole blocks without their options, where comments in any encoding are legal.
        let (kind, length) = match reader.next_raw_block() {
            None => return Ok(None),
            Some(block) => {
                let block = block?;
                data.clear();
                data.extend_from_slice(&block.body);
                (block.type_, data.len())
            }
        };
        match kind {
            ENHANCED_PACKET_BLOCK | PACKET_BLOCK => {}
            SIMPLE_PACKET_BLOCK => {
                return Err(PcapError::InvalidField("a packet without its time"));
            }
            _ => continue,
        }
        if length < 20 {
            return Err(PcapError::InvalidField("a packet block below 20 bytes"));
        }
        let endianness = reader.section().endianness;
        let word = |at: usize| {
            let bytes = [data[at], data[at + 1], data[at + 2], data[at + 3]];
            match endianness {
                Endianness::Big => u32::from_be_bytes(bytes),
                Endianness::Little => u32::from_le_bytes(bytes),
            }
        };
        let interface = match (kind, endianness) {
            (PACKET_BLOCK, Endianness::Big) => word(0) >> 16,
            (PACKET_BLOCK, Endianness::Little) => word(0) & 0xffff,
            _ => word(0),
        };
        let ticks = u64::from(word(4)) << 32 | u64::from(word(8));
        let (captured, original) = (word(12) as usize, word(16));
        if captured > length - 20 {
            return Err(PcapError::InvalidField("captured length above the block's"));
        }
        let interfaces = reader.interfaces();
        let described = interfaces
            .get(interface as usize)
            .ok_or(PcapError::InvalidInterfaceId(interface))?;
        let at_ns = nanoseconds(ticks, &described.options)?;
        let link = described.linktype;
        data.copy_within(20..20 + captured, 0);
        data.truncate(captured);
        return Ok(Some((at_ns, link, original)));
    }
}

/// A time in an interface's own units, which the library leaves as they are.
fn nanoseconds(ticks: u64, options: &[InterfaceDescriptionOption<'_>]) -> Result<u64, PcapError> {
    let (mut resolution, mut offset) = (6, 0);
    for option in options {
        match option {
            InterfaceDescriptionOption::IfTsResol(r) => resolution = *r,
            InterfaceDescriptionOption::IfTsOffset(s) => offset = s.cast_signed(),
            _ => {}
        }
    }
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let per_second = base.checked_pow(exponent);
    let per_second = per_second.ok_or(PcapError::InvalidField("resolution of time"))?;
    let ns = u128::from(ticks).checked_mul(1_000_000_000);
    let ns = ns
        .map(|ns| ns / per_second)
        .and_then(|ns| i128::try_from(ns).ok());
    ns.map(|ns| ns + i128::from(offset) * 1_000_000_000)
        .filter(|ns| *ns <= i64::MAX.into())
        .and_then(|ns| u64::try_from(ns).ok())
        .ok_or(PcapError::InvalidField("a time beyond all calendars"))
}

/// Standard input that ends when the flag is set: whoever writes into a pipe may go on for ever.
struct Interruptible(Arc<AtomicBool>);

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        while !self.0.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(
                std::os::fd::AsFd::as_fd(&stdin),
                PollFlags::POLLIN,
            )];
            match poll(&mut fds, 100u8) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return nix::unistd::read(&stdin, buffer).map_err(io::Error::from),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
