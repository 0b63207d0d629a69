//! The requests: SET and GET of 16-byte keys, prebuilt so that the hot path only writes the key
//! into place. Each value size has keys of its own, so that a GET always finds a value of the
//! size that it expects.

use std::ops::Range;

/// Bytes in a key, as in the paper's workload.
pub(crate) const KEY_LEN: usize = 16;

/// Which request: a key's number, which of the run's value sizes, and the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub key: u32,
    pub size: u16,
    pub get: bool,
}

struct Template {
    bytes: Vec<u8>,
    key_at: usize,
}

/// Both commands of a value size.
struct Commands {
    set: Template,
    get: Template,
    keys: Vec<[u8; KEY_LEN]>,
    value_size: u64,
}

/// All commands with room for the key.
pub(crate) struct Requests(Vec<Commands>);

impl Requests {
    /// With `keys` keys for each value size.
    pub fn new(keys: u32, value_sizes: &[usize]) -> Self {
        let commands = value_sizes.iter().zip(0..).map(|(&value_size, index)| {
            let first = u64::from(keys) * index;
            Commands::new(first..first + u64::from(keys), value_size)
        });
        Self(commands.collect())
    }

    /// The bytes of a request. One buffer serves all keys, so that large values stay in the cache.
    pub fn bytes(&mut self, request: Request) -> &[u8] {
        let commands = &mut self.0[usize::from(request.size)];
        let template = match request.get {
            true => &mut commands.get,
            false => &mut commands.set,
        };
        let key_at = template.key_at;
        let key = &commands.keys[request.key as usize];
        template.bytes[key_at..key_at + KEY_LEN].copy_from_slice(key);
        &template.bytes
    }

    /// Bytes of the value that a request sets or expects.
    pub fn value_size(&self, request: Request) -> u64 {
        self.0[usize::from(request.size)].value_size
    }

    /// How many keys each value size has.
    pub fn keys(&self) -> u32 {
        self.0.first().map_or(0, |c| c.keys.len() as u32)
    }

    /// How many value sizes there are.
    pub fn sizes(&self) -> u16 {
        self.0.len() as u16
    }
}

impl Commands {
    fn new(keys: Range<u64>, value_size: usize) -> Self {
        let set_head = format!("*3\r\n$3\r\nSET\r\n${KEY_LEN}\r\n").into_bytes();
        let get_head = format!("*2\r\n$3\r\nGET\r\n${KEY_LEN}\r\n").into_bytes();
        let value = vec![b'x'; value_size];
        let set_tail = [format!("\r\n${value_size}\r\n").as_bytes(), &value, b"\r\n"].concat();
        let build = |head: Vec<u8>, tail: &[u8]| Template {
            key_at: head.len(),
            bytes: [&head[..], &[0; KEY_LEN], tail].concat(),
        };
        let key = |number: u64| {
            let mut key = *b"key:000000000000";
            key[4..].copy_from_slice(format!("{number:012}").as_bytes());
            key
        };
        Self {
            set: build(set_head, &set_tail),
            get: build(get_head, b"\r\n"),
            keys: keys.map(key).collect(),
            value_size: value_size as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: u32, size: u16, get: bool) -> Request {
        Request { key, size, get }
    }

    #[test]
    fn requests_are_resp_arrays_with_sixteen_byte_keys() {
        let mut requests = Requests::new(3, &[5]);
        assert_eq!(
            requests.bytes(request(2, 0, false)),
            b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000002\r\n$5\r\nxxxxx\r\n"
        );
        assert_eq!(
            requests.bytes(request(1, 0, true)),
            b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n"
        );
    }

    #[test]
    fn each_value_size_has_keys_of_its_own() {
        let mut requests = Requests::new(3, &[5, 2]);
        assert_eq!(requests.value_size(request(0, 1, true)), 2);
        assert_eq!(
            requests.bytes(request(1, 1, false)),
            b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000004\r\n$2\r\nxx\r\n"
        );
    }
}
