//! An incremental reader of RESP2 replies. It keeps no reply bodies, only how many bytes of a bulk
//! string are still to be skipped, so a reply may be cut anywhere and costs nothing per byte.

/// What a server answered, without the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`, `+PONG` and the like.
    Simple,
    /// `-ERR …`; the text of the first one is kept, see [`Parser::first_error`].
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

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Type,
    /// Inside a line whose text does not matter, up to and including its LF.
    Line,
    /// Inside the text of an error.
    ErrorText,
    /// Inside the length of a bulk string.
    Length { value: u64, negative: bool },
    /// Inside the body of a bulk string; `left` counts the closing CR LF too.
    Body { len: u64, left: u64 },
}

/// Bytes of the first error that are kept for the message to the user.
const ERROR_TEXT_MAX: usize = 200;
/// Redis' own limit of a bulk string is 512 MiB; anything longer is a broken stream.
const BULK_MAX: u64 = 512 << 20;

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    error_text: Vec<u8>,
    error_complete: bool,
}

impl Parser {
    /// Takes the next bytes of the stream and calls `on_reply` for each reply that they complete.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_reply: impl FnMut(Reply),
    ) -> Result<(), ProtocolError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.state {
                State::Type => {
                    bytes = rest;
                    self.state = match byte {
                        b'+' => State::Line,
                        b'-' => State::ErrorText,
                        b'$' => State::Length {
                            value: 0,
                            negative: false,
                        },
                        other => return Err(ProtocolError(other)),
                    };
                }
                State::Line => {
                    let Some(end) = bytes.iter().position(|&b| b == b'\n') else {
                        return Ok(());
                    };
                    bytes = &bytes[end + 1..];
                    self.state = State::Type;
                    on_reply(Reply::Simple);
                }
                State::ErrorText => {
                    let end = bytes.iter().position(|&b| b == b'\n');
                    self.keep_error(&bytes[..end.unwrap_or(bytes.len())]);
                    let Some(end) = end else { return Ok(()) };
                    self.error_complete = true;
                    bytes = &bytes[end + 1..];
                    self.state = State::Type;
                    on_reply(Reply::Error);
                }
                State::Length { value, negative } => {
                    bytes = rest;
                    match byte {
                        b'-' => {
                            self.state = State::Length {
                                value,
                                negative: true,
                            }
                        }
                        b'0'..=b'9' => {
                            let value = value * 10 + u64::from(byte - b'0');
                            if value > BULK_MAX {
                                return Err(ProtocolError(byte));
                            }
                            self.state = State::Length { value, negative };
                        }
                        b'\r' => {}
                        b'\n' if negative => {
                            self.state = State::Type;
                            on_reply(Reply::Nil);
                        }
                        b'\n' => {
                            self.state = State::Body {
                                len: value,
                                left: value + 2,
                            }
                        }
                        other => return Err(ProtocolError(other)),
                    }
                }
                State::Body { len, left } => {
                    let skip = left.min(bytes.len() as u64);
                    bytes = &bytes[skip as usize..];
                    if skip == left {
                        self.state = State::Type;
                        on_reply(Reply::Bulk(len));
                    } else {
                        self.state = State::Body {
                            len,
                            left: left - skip,
                        };
                    }
                }
            }
        }
        Ok(())
    }

    /// The text of the first error reply of this stream, such as `NOAUTH Authentication required.`
    pub fn first_error(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.error_text);
        self.error_complete.then(|| text.trim_end().to_owned())
    }

    fn keep_error(&mut self, text: &[u8]) {
        if !self.error_complete {
            let room = ERROR_TEXT_MAX.saturating_sub(self.error_text.len());
            self.error_text
                .extend_from_slice(&text[..text.len().min(room)]);
        }
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
        assert_eq!(parser.first_error(), None);
        parser
            .feed(b"tication required.\r\n-ERR other\r\n", |_| {})
            .unwrap();
        assert_eq!(
            parser.first_error().as_deref(),
            Some("NOAUTH Authentication required.")
        );
    }

    #[test]
    fn a_stream_that_is_not_resp_is_refused() {
        let refused = Parser::default().feed(b"HTTP/1.1 400 Bad Request\r\n", |_| {});
        assert_eq!(refused, Err(ProtocolError(b'H')));
    }
}
