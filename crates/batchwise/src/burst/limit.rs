//! How much a queue holds and how fast it empties, as they are written on the command line.

/// What bounds a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many bytes.
    Bytes(u32),
    /// So many packets, however long they are.
    Packets(u32),
}

/// Reads `100p`, `150kb`, `1mb` or a number of bytes, as tc(8) does.
pub fn parse_limit(text: &str) -> Result<Limit, String> {
    let (number, unit) = split(text);
    let factor = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "p" => {
            let packets = number.parse().ok().filter(|n| *n > 0);
            return packets.map(Limit::Packets).ok_or_else(remedy);
        }
        _ => return Err(remedy()),
    };
    let bytes = number
        .parse::<u32>()
        .ok()
        .and_then(|n| n.checked_mul(factor));
    let bytes = bytes.filter(|n| *n > 0);
    bytes.map(Limit::Bytes).ok_or_else(remedy)
}

fn remedy() -> String {
    "write bytes or packets, such as 150000, 150kb, 1mb or 100p".to_owned()
}

/// Reads `100mbit`, `1gbit`, `2.5gbit` or `1000000bit`, as tc(8) does: bits a second.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => 0.0,
    };
    let rate = number.parse::<f64>().unwrap_or(0.0) * factor;
    match rate {
        1.0..=1e15 => Ok(rate as u64),
        _ => Err("write bits a second with a unit, such as 100mbit or 2.5gbit".to_owned()),
    }
}

/// A number, and the unit behind it in small letters.
fn split(text: &str) -> (&str, String) {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let at = text.find(|c| !digits(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number, unit.trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_in_bytes_or_in_packets() {
        assert_eq!(parse_limit("150000"), Ok(Limit::Bytes(150_000)));
        assert_eq!(parse_limit("64kb"), Ok(Limit::Bytes(65_536)));
        assert_eq!(parse_limit("1Mb"), Ok(Limit::Bytes(1 << 20)));
        assert_eq!(parse_limit("100p"), Ok(Limit::Packets(100)));
        for wrong in ["", "0", "0p", "1.5p", "-1", "9gb", "5000mb", "many"] {
            assert!(
                parse_limit(wrong).is_err_and(|e| e.contains("100p")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn rates_have_a_unit() {
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_rate("2.5Gbit"), Ok(2_500_000_000));
        assert_eq!(parse_rate("9600bit"), Ok(9_600));
        for wrong in ["", "100", "0mbit", "1mbyte", "mbit", "1.2.3mbit"] {
            assert!(
                parse_rate(wrong).is_err_and(|e| e.contains("100mbit")),
                "{wrong}"
            );
        }
    }
}
