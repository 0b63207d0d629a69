//! Structs of integers that the kernel side shares with this side, as the bytes that maps take and
//! give, and addresses in them.

use std::mem::size_of;
use std::net::IpAddr;
use std::slice;

/// Integers without padding: any bytes are a valid value, and all bytes of a value are set. The build script
/// implements it for the types that it generates from C.
///
/// # Safety
/// It is made of integers alone, and [`Self::FILLED`] adds up those that each value has.
pub(crate) unsafe trait Plain: Copy {
    /// How many bytes its integers have together.
    const FILLED: usize;
    /// It does not compile for a type with padding.
    const WHOLE: () = assert!(
        Self::FILLED == size_of::<Self>(),
        "a shared struct has padding"
    );
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        // SAFETY: it is one.
        unsafe impl Plain for $integer {
            const FILLED: usize = size_of::<Self>();
        }
    )*};
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);

// SAFETY: elements have nothing between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const FILLED: usize = N * T::FILLED;
}

/// What every variant of a union has.
pub(crate) const fn least(lengths: &[usize]) -> usize {
    let (mut least, mut i) = (usize::MAX, 0);
    while i < lengths.len() {
        if lengths[i] < least {
            least = lengths[i];
        }
        i += 1;
    }
    least
}

/// What the kernel wrote as a `T`; `None` when it is too short.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    const { T::WHOLE };
    (bytes.len() >= size_of::<T>()).then(|| {
        // SAFETY: there are at least as many bytes as `T` has, any of which are a valid `T`;
        // read_unaligned asks for no alignment.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    })
}

/// As the kernel reads it.
pub(crate) fn bytes<T: Plain>(value: &T) -> &[u8] {
    const { T::WHOLE };
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
