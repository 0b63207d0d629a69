//! Structs of integers that the kernel side shares with this side, as the bytes that maps take and
//! give, and addresses in them.

use std::mem::size_of;
use std::net::IpAddr;
use std::slice;

/// Plain integers without padding: any bytes are a valid value, and all bytes of a value are set.
pub(crate) trait Plain: Copy {}

/// What the kernel wrote as a `T`; `None` when it is too short.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    (bytes.len() >= size_of::<T>()).then(|| {
        // SAFETY: there are at least as many bytes as `T` has, any of which are a valid `T`;
        // read_unaligned asks for no alignment.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    })
}

/// As the kernel reads it.
pub(crate) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a `T` has so many bytes, all of them set, and they live as long as the reference.
    unsafe { slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// As the kernel side keeps it: IPv4 as IPv4-mapped IPv6. The way back is core's `passive::address`.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

impl Plain for u32 {}
impl Plain for u64 {}
