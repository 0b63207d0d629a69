//! What goes over a stream: a request that asks for so many bytes, and so many bytes.

/// Bytes in a request, the paper's size of an HTTP header (§5.7).
pub(super) const REQUEST: usize = 187;

/// A request for a response of `size` bytes.
pub(super) fn request(size: u32) -> [u8; REQUEST] {
    let mut bytes = [b'.'; REQUEST];
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// How many bytes a request asks for; `None` if it is none.
pub(super) fn asked(bytes: &[u8]) -> Option<u32> {
    let size = bytes.first_chunk().copied().map(u32::from_be_bytes)?;
    (bytes.len() == REQUEST && f64::from(size) <= super::LARGEST).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_much_it_wants_and_nothing_else_is_a_request() {
        assert_eq!(asked(&request(15_100)), Some(15_100));
        assert_eq!(asked(&request(2_000_000)), None);
        assert_eq!(asked(b"GET"), None);
        assert_eq!(asked(&[0; REQUEST + 1]), None);
    }
}
