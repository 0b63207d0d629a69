//! Keys of the live view as terminals send them: one byte, or a sequence of several that may come in pieces.

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    /// So many rows further down, or up if negative.
    Scroll(isize),
    /// Shows the row that is chosen alone, or all again.
    Open,
    /// Shows all again, or quits.
    Back,
    /// Another order, by its letter.
    Order(u8),
}

const ESC: u8 = 0x1b;
const CONTROL_C: u8 = 0x03;
/// Parameters of a sequence. No key has as many.
const LONGEST: usize = 32;

/// The beginning of a sequence whose rest has not come yet.
#[derive(Debug, Default)]
pub struct Keyboard(Vec<u8>);

impl Keyboard {
    /// What these bytes, which were read at once, ask for. Escape is the key, unless something follows it.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.0.extend_from_slice(bytes);
        let (mut keys, mut begin) = (Vec::new(), 0);
        while let Some((key, length)) = first(&self.0[begin..]) {
            keys.extend(key);
            begin += length;
        }
        self.0.drain(..begin);
        keys
    }
}

/// What the first key asks for, if it is one that we know, and its length. None: it is not complete.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes {
        [] | [ESC, b'O'] => None,
        [ESC] => Some((Some(Key::Back), 1)),
        [ESC, b'O', last, ..] => Some((named(*last), 2 + usize::from(is_last(*last)))),
        [ESC, b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| !(b' '..=b'?').contains(byte)) else {
                return (rest.len() > LONGEST).then_some((None, bytes.len()));
            };
            let (parameters, last) = (&rest[..end], rest[end]);
            let key = match last {
                b'~' => numbered(parameters),
                _ => named(last),
            };
            Some((key, 2 + end + usize::from(is_last(last))))
        }
        // with Alt it is the same key
        [ESC, ..] => Some((None, 1)),
        [byte, ..] => {
            let key = match *byte {
                b'q' | CONTROL_C => Some(Key::Quit),
                b'j' => Some(Key::Scroll(1)),
                b'k' => Some(Key::Scroll(-1)),
                b'\r' | b'\n' => Some(Key::Open),
                letter if letter.is_ascii_lowercase() => Some(Key::Order(letter)),
                _ => None,
            };
            Some((key, 1))
        }
    }
}

/// Whether a sequence can end with it; what cannot breaks the sequence off, and is a key itself.
fn is_last(byte: u8) -> bool {
    (b'@'..=b'~').contains(&byte)
}

fn named(last: u8) -> Option<Key> {
    match last {
        b'A' => Some(Key::Scroll(-1)),
        b'B' => Some(Key::Scroll(1)),
        b'H' => Some(Key::Scroll(isize::MIN)),
        b'F' => Some(Key::Scroll(isize::MAX)),
        _ => None,
    }
}

/// The first parameter tells the key, the second who is held down with it.
fn numbered(parameters: &[u8]) -> Option<Key> {
    match parameters.split(|byte| *byte == b';').next()? {
        b"1" | b"7" => Some(Key::Scroll(isize::MIN)),
        b"4" | b"8" => Some(Key::Scroll(isize::MAX)),
        b"5" => Some(Key::Scroll(-10)),
        b"6" => Some(Key::Scroll(10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Keyboard::default().read(bytes)
    }

    #[test]
    fn q_and_control_c_quit_and_escape_goes_back() {
        for quits in [&b"q"[..], b"\x03", b"\x1bq", b"\x1b[\x03"] {
            assert_eq!(keys(quits), [Key::Quit], "{quits:?}");
        }
        for back in [&b"\x1b"[..], b"\x1b\x1b"] {
            assert_eq!(keys(back), [Key::Back], "{back:?}");
        }
        for other in [
            &b"Q"[..],
            b" ",
            b"\x1b[",
            b"\x1bO",
            b"\x1b[q",
            "ä".as_bytes(),
        ] {
            assert_eq!(keys(other), [], "{other:?}");
        }
    }

    #[test]
    fn rows_are_chosen_in_every_terminals_way() {
        for (ways, by) in [
            ("k \x1b[A \x1bOA \x1b[1;5A", -1),
            ("j \x1b[B \x1bOB", 1),
            ("\x1b[5~ \x1b[5;2~", -10),
            ("\x1b[6~", 10),
            ("\x1b[H \x1bOH \x1b[1~ \x1b[7~", isize::MIN),
            ("\x1b[F \x1bOF \x1b[4~ \x1b[8~", isize::MAX),
        ] {
            for way in ways.split(' ') {
                assert_eq!(keys(way.as_bytes()), [Key::Scroll(by)], "{way:?}");
            }
        }
        for other in ["\x1b[C", "\x1bOP", "\x1b[2~", "\x1b[15~", "\x1b[~"] {
            assert_eq!(keys(other.as_bytes()), [], "{other:?}");
        }
    }

    #[test]
    fn enter_opens_and_other_letters_are_orders() {
        assert_eq!(keys(b"\r\n"), [Key::Open; 2]);
        assert_eq!(keys(b"lt"), [Key::Order(b'l'), Key::Order(b't')]);
    }

    #[test]
    fn a_sequence_without_end_is_given_up() {
        let mut keyboard = Keyboard::default();
        assert_eq!(keyboard.read(b"\x1b["), []);
        for _ in 0..1_000 {
            assert_eq!(keyboard.read(b"0;"), []);
            assert!(keyboard.0.len() <= LONGEST + 4);
        }
        assert_eq!(keyboard.read(b"q"), [Key::Quit]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_keys_or_none_however_they_are_split(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"\x1b\x1b[O;~15ABHFqjk".to_vec())],
                0..64,
            ),
            at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(bytes.len() + 1);
            let (before, after) = bytes.split_at(at);
            let mut keyboard = Keyboard::default();
            let split = [keyboard.read(before), keyboard.read(after)].concat();
            // there it is the key
            let escape = before.last() == Some(&ESC) && !after.is_empty();
            // whether anything is given up depends on how much has come
            let long = bytes.len() > LONGEST;
            if !escape && !long {
                prop_assert_eq!(split, keys(&bytes));
            }
            prop_assert!(keyboard.0.len() <= LONGEST + 2);
        }
    }
}
