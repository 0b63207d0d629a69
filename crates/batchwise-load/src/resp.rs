//! An incremental reader of RESP2 replies. It keeps no reply bodies, only how many bytes of a bulk
//! string are still to be skipped, so a reply may be cut anywhere and costs nothing per byte.

/// What a server answered, without the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`, `+PONG` and the like.
    Simple,
    /// `-ERR …`; the text of the first one is kept.
    Error,
    /// `$len` with this many bytes of body.
    Bulk(u64),
    /// `$-1`: there is no such key.
    Nil,
}

/// The stream is not what a Redis server sends for SET, GET or PING; holds the offending byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected byte 0x{0:02x} in a RESP reply (is this a Redis server?)")]
pub struct ProtocolError(pub u8);

/// Letters of the first error that are kept for the message to the user.
const ERROR_TEXT_MAX: usize = 200;
/// Bytes in a line, at most.
const LONGEST_LINE: usize = 64 << 10;
/// Redis' own limit of a bulk string is 512 MiB; anything longer is a broken stream.
const BULK_MAX: u64 = 512 << 20;

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    /// The text of the first error reply of this stream, such as `NOAUTH Authentication required.`
    pub first_error: Option<String>,
    /// A part of a line.
    line: Vec<u8>,
    /// The length of a bulk string, and how much of it is to come, the closing CR LF included.
    body: Option<(u64, u64)>,
}

impl Parser {
    /// Takes the next bytes of the stream and calls `on_reply` for each reply that they complete.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_reply: impl FnMut(Reply),
    ) -> Result<(), ProtocolError> {
        while let Some(&byte) = bytes.first() {
            if let Some((length, left)) = self.body {
                let skip = left.min(bytes.len() as u64);
                bytes = &bytes[skip as usize..];
                self.body = (skip < left).then_some((length, left - skip));
                if self.body.is_none() {
                    on_reply(Reply::Bulk(length));
                }
                continue;
            }
            if self.line.is_empty() && !b"+-$".contains(&byte) {
                return Err(ProtocolError(byte));
            }
            let end = bytes.iter().position(|&b| b == b'\n');
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            bytes = rest;
            self.line.extend_from_slice(part);
            if self.line.len() > LONGEST_LINE {
                return Err(ProtocolError(byte));
            }
            if end.is_some() {
                self.read_line()?.into_iter().for_each(&mut on_reply);
                self.line.clear();
            }
        }
        Ok(())
    }

    /// The reply that a whole line is, if it is one without a body.
    fn read_line(&mut self) -> Result<Option<Reply>, ProtocolError> {
        let (kind, text) = self.line.trim_ascii_end().split_at(1);
        let text = String::from_utf8_lossy(text);
        Ok(match kind {
            b"+" => Some(Reply::Simple),
            b"-" => {
                let shown = text.chars().take(ERROR_TEXT_MAX);
                self.first_error.get_or_insert_with(|| shown.collect());
                Some(Reply::Error)
            }
            _ if text == "-1" => Some(Reply::Nil),
            _ => {
                let length = text.parse().ok().filter(|&length| length <= BULK_MAX);
                let length = length.ok_or(ProtocolError(b'$'))?;
                self.body = Some((length, length + 2));
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(reply: Reply) -> Vec<u8> {
        match reply {
            Reply::Simple => b"+OK\r\n".to_vec(),
            Reply::Error => b"-ERR no\r\n".to_vec(),
            Reply::Nil => b"$-1\r\n".to_vec(),
            Reply::Bulk(len) => {
                // A body full of line ends and type bytes must not confuse the reader.
                let body = b"\r\n$-+:".iter().cycle().take(len as usize).copied();
                let head = format!("${len}\r\n").into_bytes();
                head.into_iter().chain(body).chain(*b"\r\n").collect()
            }
        }
    }

    fn any_reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            Just(Reply::Simple),
            Just(Reply::Error),
            Just(Reply::Nil),
            (0u64..300).prop_map(Reply::Bulk),
            Just(Reply::Bulk(16 << 10)),
        ]
    }

    proptest! {
        #[test]
        fn any_split_of_a_stream_gives_the_same_replies(
            replies in prop::collection::vec(any_reply(), 1..20),
            cuts in prop::collection::vec(1usize..700, 1..50),
        ) {
            let stream: Vec<u8> = replies.iter().flat_map(|&r| encode(r)).collect();
            let (mut parser, mut seen, mut rest) = (Parser::default(), vec![], &stream[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                parser.feed(now, |r| seen.push(r)).unwrap();
                rest = later;
            }
            prop_assert_eq!(seen, replies);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parser::default().feed(&bytes, |_| {});
        }
    }

    #[test]
    fn the_first_error_is_kept_in_full_when_it_arrives_in_pieces() {
        let mut parser = Parser::default();
        parser.feed(b"-NOAUTH Authen", |_| {}).unwrap();
        assert_eq!(parser.first_error, None);
        parser
            .feed(b"tication required.\r\n-ERR other\r\n", |_| {})
            .unwrap();
        assert_eq!(
            parser.first_error.as_deref(),
            Some("NOAUTH Authentication required.")
        );
    }

    #[test]
    fn a_stream_that_is_not_resp_is_refused() {
        let refused = Parser::default().feed(b"HTTP/1.1 400 Bad Request\r\n", |_| {});
        assert_eq!(refused, Err(ProtocolError(b'H')));
    }
}
