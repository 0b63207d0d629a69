//! The parser that runs in the kernel, compiled on the host, against another parser (etherparse):
//! both must read the same from what no network would send.
//!
//! A hundred million: `cargo test -p batchwise-bpf --release --locked --test bpf packet -- --ignored`.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use batchwise_twins::bw_twin_packet;
use batchwise_twins::types::bw_packet;
use etherparse::{EtherType, LinkExtSlice, NetSlice, SlicedPacket, TransportSlice, ether_type};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::frames;

/// As aligned as the C side has it: the generated type does not know of it.
#[repr(align(8))]
struct Aligned(bw_packet);

/// What both parsers are asked for.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    src: [u8; 16],
    dst: [u8; 16],
    ports: (u16, u16),
    protocol: u8,
    link: usize,
    payload: usize,
    /// Sequence number, acknowledgment, FIN, SYN, RST, ACK.
    tcp: Option<(u32, u32, [bool; 4])>,
}

const SPACE: usize = 4096;

/// A page that ends where the next must not be touched: what reads beyond a frame, ends the test.
struct Page(NonNull<u8>);

impl Page {
    fn new() -> Self {
        let size = NonZeroUsize::new(2 * SPACE).unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, of which nobody knows; the second page is not used.
        unsafe {
            let at = mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE).unwrap();
            mprotect(at.byte_add(SPACE), SPACE, ProtFlags::PROT_NONE).unwrap();
            Self(at.cast())
        }
    }

    fn parse(&mut self, frame: &[u8]) -> Option<Read> {
        assert!(frame.len() <= SPACE);
        let mut packet = Aligned(bw_packet::default());
        // SAFETY: the frame fits into the page's end, and `packet` is aligned.
        let parsed = unsafe {
            let at = self.0.add(SPACE - frame.len());
            at.copy_from_nonoverlapping(NonNull::from(frame).cast(), frame.len());
            bw_twin_packet(at.as_ptr(), frame.len() as u32, &mut packet.0)
        };
        let p = &packet.0;
        // as the program does
        let whole = parsed == 0 && (p.link + p.length) as usize <= frame.len();
        let flag = |bit: u8| p.flags & u32::from(bit) != 0;
        let flags = [frames::FIN, frames::SYN, frames::RST, frames::ACK].map(flag);
        whole.then_some(Read {
            src: p.tuple.src,
            dst: p.tuple.dst,
            ports: (p.tuple.sport, p.tuple.dport),
            protocol: p.tuple.proto,
            link: p.link as usize,
            payload: p.payload as usize,
            tcp: (p.tuple.proto == frames::TCP).then_some((p.seq, p.ack, flags)),
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing borrows it.
        unsafe { munmap(self.0.cast(), 2 * SPACE).unwrap() }
    }
}

/// What etherparse reads, within the limits that packet.h states.
fn reference(frame: &[u8]) -> Option<Read> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let tag = |kind: EtherType| {
        [ether_type::VLAN_TAGGED_FRAME, ether_type::PROVIDER_BRIDGING].contains(&kind)
    };
    let mut kind = EtherType(u16::from_be_bytes([frame[12], frame[13]]));
    for extension in &sliced.link_exts {
        let LinkExtSlice::Vlan(vlan) = extension else {
            return None;
        };
        if !tag(kind) {
            return None;
        }
        kind = vlan.ether_type();
    }
    if sliced.link_exts.len() > 2 {
        return None;
    }
    let (src, dst) = match sliced.net.as_ref()? {
        NetSlice::Ipv4(ip) if ip.extensions().auth.is_none() => (
            ip.header().source_addr().to_ipv6_mapped().octets(),
            ip.header().destination_addr().to_ipv6_mapped().octets(),
        ),
        NetSlice::Ipv6(ip)
            if ip.header().payload_length() > 0
                && ip.extensions().clone().into_iter().count() <= 6 =>
        {
            (ip.header().source(), ip.header().destination())
        }
        _ => return None,
    };
    let link = 14 + 4 * sliced.link_exts.len();
    match sliced.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => Some(Read {
            src,
            dst,
            ports: (tcp.source_port(), tcp.destination_port()),
            protocol: frames::TCP,
            link,
            payload: tcp.payload().len(),
            tcp: Some((
                tcp.sequence_number(),
                tcp.acknowledgment_number(),
                [tcp.fin(), tcp.syn(), tcp.rst(), tcp.ack()],
            )),
        }),
        TransportSlice::Udp(udp) if udp.length() > 0 => Some(Read {
            src,
            dst,
            ports: (udp.source_port(), udp.destination_port()),
            protocol: frames::UDP,
            link,
            payload: udp.payload().len(),
            tcp: None,
        }),
        _ => None,
    }
}

/// Values that matter to some field.
const TELLING: [u8; 20] = [
    0, 1, 2, 4, 5, 6, 7, 8, 17, 43, 44, 51, 60, 0x45, 0x4f, 0x60, 0x81, 0x88, 0xdd, 0xff,
];

fn mutate(rng: &mut SmallRng, frame: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=4) {
        let len = frame.len();
        // most of what is read is among the first bytes
        let near = if rng.random_ratio(7, 8) { 100 } else { len };
        let at = rng.random_range(0..near.min(len));
        match rng.random_range(0..6) {
            0 => frame[at] ^= 1 << rng.random_range(0..8),
            1 => frame[at] = rng.random(),
            2 | 3 => frame[at] = TELLING[rng.random_range(0..TELLING.len())],
            4 => frame.truncate(at.max(1)),
            _ => frame.insert(at, rng.random()),
        }
    }
}

fn compare(count: u64, seed: u64) {
    let kinds = frames::kinds();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut page = Page::new();
    let mut read = 0;
    let mut frame = Vec::new();
    for _ in 0..count {
        frame.clone_from(&kinds[rng.random_range(0..kinds.len())]);
        mutate(&mut rng, &mut frame);
        let (ours, theirs) = (page.parse(&frame), reference(&frame));
        assert_eq!(ours, theirs, "{frame:02x?}");
        read += u64::from(ours.is_some());
    }
    // else the comparison says little
    assert!(
        read > count / 5 && read < count * 9 / 10,
        "{read} of {count} were read"
    );
}

#[test]
fn valid_frames_are_read() {
    let mut page = Page::new();
    for frame in frames::kinds() {
        let ours = page.parse(&frame);
        assert!(ours.is_some(), "{frame:02x?}");
        assert_eq!(ours, reference(&frame));
    }
}

#[test]
fn a_frame_that_was_cut_is_not_read() {
    let mut page = Page::new();
    for frame in frames::kinds() {
        for len in 1..frame.len() {
            assert_eq!(page.parse(&frame[..len]), None, "{len} of {frame:02x?}");
        }
    }
}

#[test]
fn a_million_mutated_frames_are_read_as_by_etherparse() {
    compare(1_000_000, 1);
}

#[test]
#[ignore = "takes a minute"]
fn a_hundred_million_mutated_frames_are_read_as_by_etherparse() {
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || compare(50_000_000, 100 + seed));
        }
    });
}
