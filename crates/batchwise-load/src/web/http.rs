//! HTTP/1.1 responses as they come in: where each ends, however the bytes are cut.

use httparse::{EMPTY_HEADER, Status};

/// Headers of a response, at most.
const HEADERS: usize = 64;
/// Bytes of a head or of a chunk's length line, at most.
const LONGEST_HEAD: usize = 64 << 10;

/// A complete response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub status: u16,
    /// All its bytes.
    pub bytes: u64,
    /// Those of the body, without the framing of chunks.
    pub body: u64,
    /// The body is compressed.
    pub encoded: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    /// So many bytes of the body are still to come.
    Body(u64),
    ChunkSize,
    /// Bytes of a chunk and of the line end after it.
    Chunk(u64),
    /// The lines after the last chunk.
    Trailer,
}

/// What the bytes so far mean.
#[derive(Default)]
pub(crate) struct Parser {
    state: State,
    /// A part of a head or of a line.
    carry: Vec<u8>,
    current: Response,
}

impl Parser {
    /// Takes bytes up to the end of a response; returns how many, and the response if it is
    /// complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Response>), String> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let taken = match self.state {
                State::Head => self.part(rest, Self::head)?,
                State::ChunkSize => self.part(rest, Self::chunk_size)?,
                State::Trailer => self.part(rest, Self::trailer)?,
                State::Body(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.current.body += taken;
                    self.state = State::Body(left - taken);
                    taken as usize
                }
                State::Chunk(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.state = match left - taken {
                        0 => State::ChunkSize,
                        left => State::Chunk(left),
                    };
                    taken as usize
                }
            };
            at += taken;
            self.current.bytes += taken as u64;
            if matches!(self.state, State::Body(0)) {
                self.state = State::Head;
                return Ok((at, Some(std::mem::take(&mut self.current))));
            }
        }
        Ok((at, None))
    }

    /// Lets `parse` read a part that must be whole, over several calls if it has to. `parse`
    /// returns the length of the part once it is there.
    fn part(
        &mut self,
        bytes: &[u8],
        parse: fn(&mut Self, &[u8]) -> Result<Option<usize>, String>,
    ) -> Result<usize, String> {
        let mut carry = std::mem::take(&mut self.carry);
        let known = carry.len();
        let whole = match known {
            0 => bytes,
            _ => {
                carry.extend_from_slice(bytes);
                &carry
            }
        };
        let length = parse(self, whole)?;
        if length.is_none() && whole.len() > LONGEST_HEAD {
            return Err("a head without an end".into());
        }
        match length {
            Some(_) => carry.clear(),
            None if known == 0 => carry.extend_from_slice(bytes),
            None => {}
        }
        self.carry = carry;
        Ok(length.map_or(bytes.len(), |length| length - known))
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(bytes);
        let Status::Complete(length) = parsed.map_err(|why| format!("not HTTP: {why}"))? else {
            return Ok(None);
        };
        self.current.status = response.code.unwrap_or_default();
        let (mut body, mut chunked) = (None, false);
        for header in response.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let text = std::str::from_utf8(header.value).unwrap_or_default();
                let length = text.trim().parse::<u64>();
                body = Some(length.map_err(|_| format!("`{text}` is no content-length"))?);
            } else if is("transfer-encoding") {
                chunked = header.value.eq_ignore_ascii_case(b"chunked");
            } else if is("content-encoding") {
                self.current.encoded = !header.value.eq_ignore_ascii_case(b"identity");
            }
        }
        self.state = match (chunked, body) {
            (true, _) => State::ChunkSize,
            (false, Some(length)) => State::Body(length),
            (false, None) => {
                return Err("a response without content-length, which ends with its \
                            connection: keep-alive must be on"
                    .into());
            }
        };
        Ok(Some(length))
    }

    fn chunk_size(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        let parsed = httparse::parse_chunk_size(bytes);
        let parsed = parsed.map_err(|_| "a chunk without a length".to_owned())?;
        let Status::Complete((length, size)) = parsed else {
            return Ok(None);
        };
        self.current.body = self.current.body.saturating_add(size);
        self.state = match size {
            0 => State::Trailer,
            size => State::Chunk(size.saturating_add(2)),
        };
        Ok(Some(length))
    }

    /// An empty line ends the response; other lines are passed over.
    fn trailer(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        if end <= 1 {
            self.state = State::Body(0);
        }
        Ok(Some(end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\
                           Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\na\r\n0123456789\r\n\
                           0\r\n\r\n";
    const MISSING: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

    fn feed(pieces: &[&[u8]]) -> Result<Vec<Response>, String> {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (taken, response) = parser.take(rest)?;
                found.extend(response);
                rest = &rest[taken..];
            }
        }
        Ok(found)
    }

    #[test]
    fn responses_are_found_however_the_bytes_are_cut() {
        let all = [PLAIN, CHUNKED, MISSING, PLAIN].concat().into_bytes();
        let expected = [
            (200, PLAIN.len(), 5, false),
            (200, CHUNKED.len(), 14, true),
            (404, MISSING.len(), 0, false),
            (200, PLAIN.len(), 5, false),
        ]
        .map(|(status, bytes, body, encoded)| Response {
            status,
            bytes: bytes as u64,
            body,
            encoded,
        });
        for size in 1..=all.len() {
            let pieces: Vec<_> = all.chunks(size).collect();
            assert_eq!(feed(&pieces).unwrap(), expected, "pieces of {size} B");
        }
    }

    #[test]
    fn what_is_not_a_response_with_a_length_is_refused() {
        for (text, why) in [
            ("SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\n\r\n", "without content-length"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                "no content-length",
            ),
        ] {
            let refused = feed(&[text.as_bytes()]).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
