//! How much TCP can send on a connection at once: what an application should hand over, and no more.
//! From *Reducing Kernel Queuing Delays with TCP Window Space Events* (Goulet and Jansen), §3, with the
//! faults of its formula mended (`docs/research/window.md`).

/// The sending side of a connection: what `struct tcp_sock` holds of it, and TCP_INFO tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Segments sent and not acknowledged, …
    pub unacked: u32,
    /// … of which so many have arrived behind a gap, …
    pub sacked: u32,
    /// … and so many are taken for lost, …
    pub lost: u32,
    /// … of which so many were sent again.
    pub retrans: u32,
    /// Bytes sent and not acknowledged: `snd_nxt - snd_una`.
    pub flight: u32,
    /// Bytes that the peer has room for, from what it has acknowledged on: `snd_wnd`.
    pub peer: u32,
    /// Bytes handed over and not sent: `write_seq - snd_nxt`.
    pub unsent: u32,
    /// Bytes that the send buffer has room for; `u32::MAX` where that is not known, as `write` keeps to
    /// it.
    pub buffer: u32,
    /// Bytes that TCP gives to the device before it waits for it: see [`device_room`]. `u32::MAX` where
    /// that is not known.
    pub device: u32,
}

impl Sender {
    /// Bytes that TCP would send at once if it were handed them. With `slack` so many more may wait in
    /// the kernel, for applications that wake up late. A segment, where nothing is under way: with
    /// nothing in hand TCP does not ask a peer whose window is closed whether it has opened.
    pub fn space(&self, slack: u32) -> u32 {
        let of = i64::from;
        // tcp_packets_in_flight(), net/tcp.h
        let under_way = of(self.unacked) - of(self.sacked) - of(self.lost) + of(self.retrans);
        let window = (of(self.cwnd) - under_way).clamp(0, MOST_SEGMENTS) * of(self.mss);
        let peer = (of(self.peer) - of(self.flight)).max(0);
        let at_once = window.min(peer).min(of(self.device));
        let space = at_once + of(slack) - of(self.unsent);
        let least = if self.is_idle() { of(self.mss) } else { 0 };
        space.max(least).min(of(self.buffer)) as u32
    }

    /// Bytes that congestion window and peer allow, whatever the device takes. With nothing under way
    /// `u32::MAX`: they will not grow.
    pub fn allowed(&self) -> u32 {
        let device = u32::MAX;
        match self.is_idle() {
            true => u32::MAX,
            false => Self { device, ..*self }.space(0),
        }
    }

    /// All that was handed over has arrived.
    fn is_idle(&self) -> bool {
        self.unacked == 0 && self.unsent == 0
    }
}

/// What TCP gives to the device at once: TCP small queues hold a connection to what it paces in about a
/// millisecond, or two packets (tcp_small_queue_check(), net/ipv4/tcp_output.c). `queued` is what the device
/// has of it (`sk_wmem_alloc`), `pacing_rate` is bytes a second.
pub fn device_room(pacing_rate: u64, mss: u32, queued: u32) -> u32 {
    // two packets take the room of about three segments
    let limit = (pacing_rate >> 10).max(3 * u64::from(mss));
    match limit.checked_sub(queued.into()) {
        // one is sent as long as the limit is not exceeded
        Some(room) => u32::try_from(room.max(mss.into())).unwrap_or(u32::MAX),
        None => 0,
    }
}

/// More than any congestion window: their bytes fit an i64.
const MOST_SEGMENTS: i64 = 1 << 30;

/// How long an application that waits for space trusts that an event will come, ns: half a smoothed
/// round trip, but no less than 2 ms. The kernel tells of nothing that only a timer of its own does.
pub fn patience(round_trip: u64) -> u64 {
    (round_trip / 2).max(SHORTEST_PATIENCE)
}

const SHORTEST_PATIENCE: u64 = 2_000_000;
