//! What became of the packets that a load balancer saw, counted over all CPUs.

use crate::balance_skel::{types, types::balance_outcome};

/// Packets by their outcome; each has exactly one. Only `forwarded`, `icmp_forwarded` and `passed`
/// went on; `icmp_answered` and `too_big` were answered, all others dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// To a backend.
    pub forwarded: u64,
    /// To this host's own stack: not to a service's address, or not to our MAC address.
    pub passed: u64,
    /// To a service that nobody serves.
    pub no_backend: u64,
    /// To a service's address, at a port or protocol that has no service.
    pub no_service: u64,
    /// Fragments: they have no ports, or not all of their payload.
    pub fragment: u64,
    /// With IPv4 options.
    pub options: u64,
    /// With IPv6 extension headers.
    pub extensions: u64,
    /// Headers that contradict themselves or the frame.
    pub malformed: u64,
    /// To a backend on link, with a TTL or hop limit that allows no further hop.
    pub expired: u64,
    /// Larger than the way to the backend allows: the client is told.
    pub too_big: u64,
    /// ICMP errors, to the backend of the connection that they are about.
    pub icmp_forwarded: u64,
    /// Echo requests.
    pub icmp_answered: u64,
    /// ICMP about no service's connection, or of another kind.
    pub icmp_unknown: u64,
    /// No room for headers.
    pub unsent: u64,
    /// Beside the outcomes: packets amid a connection of which nothing was known.
    pub unknown_flow: u64,
    /// Beside the outcomes: flows that could not be kept.
    pub insert_failed: u64,
}

impl Outcomes {
    /// All packets.
    pub fn packets(&self) -> u64 {
        self.by_name().iter().map(|(_, n)| n).sum()
    }

    /// Each outcome with its name.
    pub fn by_name(&self) -> [(&'static str, u64); 14] {
        [
            ("forwarded", self.forwarded),
            ("passed", self.passed),
            ("no_backend", self.no_backend),
            ("no_service", self.no_service),
            ("fragment", self.fragment),
            ("options", self.options),
            ("extensions", self.extensions),
            ("malformed", self.malformed),
            ("expired", self.expired),
            ("too_big", self.too_big),
            ("icmp_forwarded", self.icmp_forwarded),
            ("icmp_answered", self.icmp_answered),
            ("icmp_unknown", self.icmp_unknown),
            ("unsent", self.unsent),
        ]
    }

    /// The sum over CPUs.
    pub(super) fn sum(cpus: impl Iterator<Item = types::balance_tallies>) -> Self {
        let mut sum = types::balance_tallies::default();
        for cpu in cpus {
            for (sum, n) in sum.outcome.iter_mut().zip(cpu.outcome) {
                *sum += n;
            }
            sum.unknown_flow += cpu.unknown_flow;
            sum.insert_failed += cpu.insert_failed;
        }
        let of = |outcome: balance_outcome| sum.outcome[outcome.0 as usize];
        Self {
            forwarded: of(balance_outcome::BALANCE_OUT_FORWARDED),
            passed: of(balance_outcome::BALANCE_OUT_PASSED),
            no_backend: of(balance_outcome::BALANCE_OUT_NO_BACKEND),
            no_service: of(balance_outcome::BALANCE_OUT_NO_SERVICE),
            fragment: of(balance_outcome::BALANCE_OUT_FRAGMENT),
            options: of(balance_outcome::BALANCE_OUT_OPTIONS),
            extensions: of(balance_outcome::BALANCE_OUT_EXTENSIONS),
            malformed: of(balance_outcome::BALANCE_OUT_MALFORMED),
            expired: of(balance_outcome::BALANCE_OUT_EXPIRED),
            too_big: of(balance_outcome::BALANCE_OUT_TOO_BIG),
            icmp_forwarded: of(balance_outcome::BALANCE_OUT_ICMP_FORWARDED),
            icmp_answered: of(balance_outcome::BALANCE_OUT_ICMP_ANSWERED),
            icmp_unknown: of(balance_outcome::BALANCE_OUT_ICMP_UNKNOWN),
            unsent: of(balance_outcome::BALANCE_OUT_UNSENT),
            unknown_flow: sum.unknown_flow,
            insert_failed: sum.insert_failed,
        }
    }
}

// an outcome that the kernel side gains has to be named above, twice
const _: () = assert!(balance_outcome::BALANCE_OUTS.0 == 14);

/// What a backend was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP, before encapsulation.
    pub bytes: u64,
    /// Flows, counted at their second packet.
    pub opened: u64,
    /// Flows of which the first FIN or RST was seen.
    pub closed: u64,
}

impl Tally {
    /// The sum over CPUs.
    pub(super) fn sum(cpus: impl Iterator<Item = types::balance_backend_tally>) -> Self {
        cpus.fold(Self::default(), |sum, c| Self {
            packets: sum.packets + c.packets,
            bytes: sum.bytes + c.bytes,
            opened: sum.opened + c.opened,
            closed: sum.closed + c.closed,
        })
    }
}
