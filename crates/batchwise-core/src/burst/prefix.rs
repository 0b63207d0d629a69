//! Whose credit a burst draws on, where a host has as many addresses as it likes.

use core::net::Ipv6Addr;

/// Hosts of one IPv6 prefix of this length are one source. IPv4 addresses are one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(u8);

impl Prefix {
    /// The shortest that there is: a host picks the other half of its address itself (RFC 4862).
    pub const LEAST: u8 = 64;
    /// Each address is a source.
    pub const ADDRESS: Self = Self(128);

    /// Of so many bits, from 64 to 128; `None`: it cannot be.
    pub const fn new(bits: u8) -> Option<Self> {
        match bits {
            Self::LEAST..=128 => Some(Self(bits)),
            _ => None,
        }
    }

    /// The bits of an address's second half that count.
    pub const fn mask(self) -> u64 {
        match self.0 {
            Self::LEAST => 0,
            bits => !0 << (128 - bits),
        }
    }

    /// The source of what this address sends.
    pub fn of(self, address: Ipv6Addr) -> Ipv6Addr {
        let first = !0 << 64;
        Ipv6Addr::from_bits(address.to_bits() & (first | u128::from(self.mask())))
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self(Self::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_prefix_are_one_source_and_others_are_not() {
        let at = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let (a, b) = (at("fd00:1::a:1:2:3"), at("fd00:1::a:1:2:4"));
        let half = Prefix::default();
        assert_eq!(half.of(a), half.of(b));
        assert_eq!(half.of(a), at("fd00:1::"));
        assert_ne!(half.of(a), half.of(at("fd00:1:0:1::1")));
        assert_ne!(Prefix::ADDRESS.of(a), Prefix::ADDRESS.of(b));
        let more = Prefix::new(80).expect("a length");
        assert_eq!(more.of(a), at("fd00:1::a:0:0:0"));
        assert_eq!((Prefix::new(63), Prefix::new(129)), (None, None));
    }
}
