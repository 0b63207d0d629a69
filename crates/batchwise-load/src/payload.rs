//! The requests: SET and GET of 16-byte keys, prebuilt so that the hot path only writes the key
//! into place.

/// Bytes in a key, as in the paper's workload.
pub(crate) const KEY_LEN: usize = 16;

/// Which request: a key's number and the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub key: u32,
    pub get: bool,
}

struct Template {
    bytes: Vec<u8>,
    key_at: usize,
}

/// Both commands with room for the key.
pub(crate) struct Requests {
    set: Template,
    get: Template,
    keys: Vec<[u8; KEY_LEN]>,
}

impl Requests {
    pub fn new(keys: u32, value_size: usize) -> Self {
        let set_head = format!("*3\r\n$3\r\nSET\r\n${KEY_LEN}\r\n").into_bytes();
        let get_head = format!("*2\r\n$3\r\nGET\r\n${KEY_LEN}\r\n").into_bytes();
        let value = vec![b'x'; value_size];
        let set_tail = [format!("\r\n${value_size}\r\n").as_bytes(), &value, b"\r\n"].concat();
        let build = |head: Vec<u8>, tail: &[u8]| Template {
            key_at: head.len(),
            bytes: [&head[..], &[0; KEY_LEN], tail].concat(),
        };
        let key = |number: u32| {
            let mut key = *b"key:000000000000";
            key[4..].copy_from_slice(format!("{number:012}").as_bytes());
            key
        };
        Self {
            set: build(set_head, &set_tail),
            get: build(get_head, b"\r\n"),
            keys: (0..keys).map(key).collect(),
        }
    }

    /// The bytes of a request. One buffer serves all keys, so that large values stay in the cache.
    pub fn bytes(&mut self, request: Request) -> &[u8] {
        let template = if request.get {
            &mut self.get
        } else {
            &mut self.set
        };
        let key_at = template.key_at;
        template.bytes[key_at..key_at + KEY_LEN].copy_from_slice(&self.keys[request.key as usize]);
        &template.bytes
    }

    /// How many keys there are.
    pub fn keys(&self) -> u32 {
        self.keys.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_resp_arrays_with_sixteen_byte_keys() {
        let mut requests = Requests::new(3, 5);
        assert_eq!(
            requests.bytes(Request { key: 2, get: false }),
            b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000002\r\n$5\r\nxxxxx\r\n"
        );
        assert_eq!(
            requests.bytes(Request { key: 1, get: true }),
            b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n"
        );
    }
}
