//! memcached's text protocol: the replies to `get` and `set`, however the bytes are cut.

/// Bytes in a line, at most.
const LONGEST_LINE: usize = 2048;

/// What a reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A set was done.
    Stored,
    /// A get found a value of so many bytes.
    Value(u64),
    /// A get found nothing.
    Miss,
    /// Anything else: the server's words.
    Error(String),
}

/// What the bytes so far mean.
#[derive(Default)]
pub(crate) struct Parser {
    /// Bytes of a value and of the line end after it that are still to come.
    data: u64,
    /// The length of the value that the reply brought.
    value: Option<u64>,
    /// A part of a line.
    line: Vec<u8>,
    bytes: u64,
}

impl Parser {
    /// Takes bytes up to the end of a reply; returns how many, and the reply with its length if
    /// it is complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<(Reply, u64)>), String> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if self.data > 0 {
                let taken = self.data.min(rest.len() as u64);
                self.data -= taken;
                self.bytes += taken;
                at += taken as usize;
                continue;
            }
            let end = rest.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(rest.len(), |end| end + 1);
            self.line.extend_from_slice(&rest[..taken]);
            self.bytes += taken as u64;
            at += taken;
            if self.line.len() > LONGEST_LINE {
                return Err("not memcached's text protocol: a line without an end".into());
            }
            if end.is_some() {
                let reply = self.read_line()?;
                self.line.clear();
                if let Some(reply) = reply {
                    self.value = None;
                    return Ok((at, Some((reply, std::mem::take(&mut self.bytes)))));
                }
            }
        }
        Ok((at, None))
    }

    /// The reply that a whole line ends, if it ends one.
    fn read_line(&mut self) -> Result<Option<Reply>, String> {
        let line = self.line.trim_ascii_end();
        Ok(Some(match line {
            b"STORED" => Reply::Stored,
            b"END" => self.value.map_or(Reply::Miss, Reply::Value),
            _ => match line.strip_prefix(b"VALUE ") {
                Some(head) => {
                    // "<key> <flags> <bytes>"
                    let length = head.split(|&byte| byte == b' ').nth(2);
                    let length = length.and_then(|text| std::str::from_utf8(text).ok());
                    let length: u64 = length
                        .and_then(|text| text.parse().ok())
                        .ok_or("a value without a length")?;
                    self.data = length + 2;
                    self.value = Some(length);
                    return Ok(None);
                }
                None => Reply::Error(String::from_utf8_lossy(line).into_owned()),
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_found_however_the_bytes_are_cut() {
        let texts = [
            "STORED\r\n",
            "VALUE key 0 10\r\nEND\r\nEND\r\n\r\nEND\r\n",
            "END\r\n",
            "SERVER_ERROR out of memory\r\n",
        ];
        let replies = [
            Reply::Stored,
            Reply::Value(10),
            Reply::Miss,
            Reply::Error("SERVER_ERROR out of memory".into()),
        ];
        let lengths = texts.map(|text| text.len() as u64);
        let all = texts.concat().into_bytes();
        for size in 1..=all.len() {
            let (mut parser, mut found) = (Parser::default(), Vec::new());
            for mut piece in all.chunks(size) {
                while !piece.is_empty() {
                    let (taken, reply) = parser.take(piece).unwrap();
                    found.extend(reply);
                    piece = &piece[taken..];
                }
            }
            let expected: Vec<_> = replies.iter().cloned().zip(lengths).collect();
            assert_eq!(found, expected, "pieces of {size} B");
        }
    }

    #[test]
    fn what_is_not_memcached_is_refused() {
        let mut parser = Parser::default();
        assert!(parser.take(&[b'x'; 5000]).is_err());
        assert!(Parser::default().take(b"VALUE key\r\n").is_err());
    }
}
