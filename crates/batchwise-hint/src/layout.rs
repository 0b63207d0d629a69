//! The layout of the shared memory and of the message that hands it over: the only definition of
//! both. All integers are of the machine's byte order.

use std::mem::size_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// First word of a segment: "bwhints" and a zero.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"bwhints\0");
/// Version of the segment's layout and of the message.
pub const VERSION: u32 = 1;
/// Size of a page: segments are whole pages of it.
pub const PAGE: usize = 4096;
/// No segment is larger, bytes.
pub const LARGEST: usize = 1 << 20;

/// [`Header::clock`]: x86's time stamp counter.
pub const CLOCK_TSC: u32 = 1;
/// [`Header::clock`]: CLOCK_MONOTONIC, ns.
pub const CLOCK_MONOTONIC: u32 = 2;

/// The start of a segment; [`Header::shards`] of [`Shard`] follow.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Number of shards; the last is shared by threads that have none of their own.
    pub shards: AtomicU32,
    /// What the times are: [`CLOCK_TSC`] or [`CLOCK_MONOTONIC`].
    pub clock: AtomicU32,
    /// Not 0 when the handle is closed.
    pub closed: AtomicU32,
    /// The clock when the segment was made …
    pub anchor_ticks: AtomicU64,
    /// … and CLOCK_MONOTONIC at the same moment, ns. Together with another such pair it gives
    /// the clock's rate.
    pub anchor_ns: AtomicU64,
}

/// What the threads of one slot have done: the paper's 4-tuple as sums that threads need not agree
/// on an order for. At time t a queue's integral is `completed_at − created_at + (created −
/// completed) · t`. Only one thread writes at a time. Everything wraps.
///
/// A pair of cache lines, since the adjacent-line prefetcher fetches pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Shard {
    /// Odd while the next four are being written.
    pub version: AtomicU64,
    /// Requests that were created.
    pub created: AtomicU64,
    /// The sum of the times at which they were.
    pub created_at: AtomicU64,
    /// Requests that were completed.
    pub completed: AtomicU64,
    /// The sum of the times at which they were.
    pub completed_at: AtomicU64,
    /// Requests that were created while no agent listened, and no clock was read.
    pub untimed_created: AtomicU64,
    /// Requests that were completed so.
    pub untimed_completed: AtomicU64,
}

/// Values of one shard, or the sums of several: see [`Shard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// As in [`Shard`].
    pub created: u64,
    /// As in [`Shard`].
    pub created_at: u64,
    /// As in [`Shard`].
    pub completed: u64,
    /// As in [`Shard`].
    pub completed_at: u64,
    /// As in [`Shard`].
    pub untimed_created: u64,
    /// As in [`Shard`].
    pub untimed_completed: u64,
}

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Completed,
}

fn add(to: &AtomicU64, value: u64) {
    // the only writer: no read-modify-write cycle is needed
    to.store(
        to.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

impl Shard {
    /// Counts `n` requests at `now`. To be called by one thread at a time.
    #[inline(always)]
    pub(crate) fn count(&self, event: Event, n: u64, now: u64) {
        let (count, at) = match event {
            Event::Created => (&self.created, &self.created_at),
            Event::Completed => (&self.completed, &self.completed_at),
        };
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        add(count, n);
        add(at, n.wrapping_mul(now));
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// Counts `n` requests without a time. To be called by one thread at a time.
    #[inline(always)]
    pub(crate) fn count_untimed(&self, event: Event, n: u64) {
        add(
            match event {
                Event::Created => &self.untimed_created,
                Event::Completed => &self.untimed_completed,
            },
            n,
        );
    }

    /// The values, unless they are being written.
    pub fn read(&self) -> Option<Sums> {
        let version = self.version.load(Ordering::Acquire);
        let load = |v: &AtomicU64| v.load(Ordering::Relaxed);
        let sums = Sums {
            created: load(&self.created),
            created_at: load(&self.created_at),
            completed: load(&self.completed),
            completed_at: load(&self.completed_at),
            untimed_created: load(&self.untimed_created),
            untimed_completed: load(&self.untimed_completed),
        };
        fence(Ordering::Acquire);
        let same = version == self.version.load(Ordering::Relaxed);
        (same && version.is_multiple_of(2)).then_some(sums)
    }
}

impl Sums {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        let add = |a: &mut u64, b: u64| *a = a.wrapping_add(b);
        add(&mut self.created, other.created);
        add(&mut self.created_at, other.created_at);
        add(&mut self.completed, other.completed);
        add(&mut self.completed_at, other.completed_at);
        add(&mut self.untimed_created, other.untimed_created);
        add(&mut self.untimed_completed, other.untimed_completed);
    }
}

/// The size of a segment of at least `shards` shards, bytes: whole pages.
pub const fn segment_size(shards: usize) -> usize {
    (size_of::<Header>() + shards * size_of::<Shard>()).next_multiple_of(PAGE)
}

/// The shards of a segment on a machine of so many CPUs, at least: one for every thread that can run at a
/// time, twice over, and one for all others.
pub const fn shards_for(cpus: usize) -> usize {
    2 * cpus + 1
}

/// The shards for which a segment of `size` bytes has room.
pub const fn shards_in(size: usize) -> usize {
    size.saturating_sub(size_of::<Header>()) / size_of::<Shard>()
}

/// Whom a handle's requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kernel's cookie of the connection's socket (SO_COOKIE); of a service none.
    pub cookie: Option<u64>,
    /// The connection's own address.
    pub local: Option<SocketAddr>,
    /// The server's address, as the client sees it.
    pub service: SocketAddr,
}

/// The message that hands a segment over; the memfd is its only SCM_RIGHTS descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whose requests the segment counts.
    pub identity: Identity,
    /// All that the segment counts was counted with an agent listening, and no agent has had it.
    pub fresh: bool,
}

/// Length of an encoded [`Registration`].
pub const REGISTRATION_LEN: usize = 64;

const ADDRESS_LEN: usize = 20;
const FRESH: u32 = 1;

impl Registration {
    /// As it is sent: magic, version and flags, cookie (0: none), local address, service.
    pub fn encode(&self) -> [u8; REGISTRATION_LEN] {
        let mut out = [0; REGISTRATION_LEN];
        let flags = if self.fresh { FRESH } else { 0 };
        out[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        out[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        out[12..16].copy_from_slice(&flags.to_ne_bytes());
        out[16..24].copy_from_slice(&self.identity.cookie.unwrap_or(0).to_ne_bytes());
        if let Some(local) = self.identity.local {
            out[24..44].copy_from_slice(&encode_address(local));
        }
        out[44..].copy_from_slice(&encode_address(self.identity.service));
        out
    }

    /// `None` when these bytes are no registration of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REGISTRATION_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u64::from_ne_bytes(bytes[at..at + 8].try_into().ok()?));
        let half = |at: usize| Some(u32::from_ne_bytes(bytes[at..at + 4].try_into().ok()?));
        if word(0)? != MAGIC || half(8)? != VERSION {
            return None;
        }
        Some(Self {
            identity: Identity {
                cookie: Some(word(16)?).filter(|c| *c != 0),
                local: decode_address(&bytes[24..44]),
                service: decode_address(&bytes[44..])?,
            },
            fresh: half(12)? & FRESH != 0,
        })
    }
}

/// An IPv6 address (IPv4 mapped into it), the port, and whether there is one at all.
fn encode_address(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    let mut out = [0; ADDRESS_LEN];
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out[..16].copy_from_slice(&ip.octets());
    out[16..18].copy_from_slice(&address.port().to_ne_bytes());
    out[18] = 1;
    out
}

fn decode_address(bytes: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    let port = u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?);
    let ip = Ipv6Addr::from(ip).to_canonical();
    (*bytes.get(18)? == 1).then(|| SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_survives_the_wire() {
        for service in ["10.0.0.1:6379", "[2001:db8::1]:443", "0.0.0.0:0"] {
            for cookie in [None, Some(7)] {
                let registration = Registration {
                    identity: Identity {
                        cookie,
                        local: cookie.map(|_| "127.0.0.1:50000".parse().unwrap()),
                        service: service.parse().unwrap(),
                    },
                    fresh: cookie.is_some(),
                };
                assert_eq!(
                    Registration::decode(&registration.encode()),
                    Some(registration)
                );
            }
        }
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_that_the_kernel_means() {
        let address = encode_address("[::ffff:10.0.0.1]:80".parse().unwrap());
        assert_eq!(
            decode_address(&address),
            Some("10.0.0.1:80".parse().unwrap())
        );
    }

    #[test]
    fn what_is_no_registration_is_refused() {
        let service = "10.0.0.1:6379".parse().unwrap();
        let good = Registration {
            identity: Identity {
                cookie: None,
                local: None,
                service,
            },
            fresh: false,
        }
        .encode();
        assert_eq!(Registration::decode(&good[1..]), None);
        assert_eq!(Registration::decode(&[]), None);
        for at in [0, 8, 62] {
            let mut bad = good;
            bad[at] ^= 0x55;
            assert_eq!(Registration::decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_shard_that_is_being_written_is_not_read() {
        let shard = Shard::default();
        shard.count(Event::Created, 2, 10);
        let sums = shard.read().expect("nobody writes");
        assert_eq!((sums.created, sums.created_at), (2, 20));
        shard.version.store(3, Ordering::Relaxed);
        assert_eq!(shard.read(), None);
    }

    #[test]
    fn a_page_holds_the_header_and_31_shards() {
        assert_eq!(segment_size(31), PAGE);
        assert_eq!(shards_in(PAGE), 31);
        assert_eq!(segment_size(32), 2 * PAGE);
        assert_eq!(shards_in(0), 0);
    }
}
