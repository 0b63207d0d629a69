//! A rate and a queue's limit on the command line, as tc writes them.

/// What a queue holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Packets(u32),
    Bytes(u32),
}

/// No frame is shorter on a wire, and none counts for less, bytes.
pub const SHORTEST: u32 = 60;

impl Limit {
    /// So many packets can be in such a queue.
    pub fn most_packets(self) -> u32 {
        match self {
            Self::Packets(packets) => packets,
            Self::Bytes(bytes) => bytes.div_ceil(SHORTEST),
        }
    }
}

/// Splits a number from its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = number.trim().parse::<f64>().ok()?;
    (number > 0.0 && number.is_finite()).then_some((number, unit))
}

/// Reads `100mbit`, `1gbit`, `2.5gbit`: bits a second.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let scaled = split(text).and_then(|(number, unit)| {
        let factor = match unit.to_ascii_lowercase().as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return None,
        };
        Some((number * factor).round() as u64)
    });
    match scaled {
        Some(rate @ 8_000..=1_000_000_000_000) => Ok(rate),
        _ => Err("a rate from 8kbit to 1000gbit, such as 100mbit or 1gbit".to_owned()),
    }
}

/// Reads `100` (packets) or `150kb` (bytes).
pub fn parse_limit(text: &str) -> Result<Limit, String> {
    let wrong =
        || "packets, such as 100, or bytes with their unit, such as 150kb or 1mb".to_owned();
    if let Ok(packets) = text.parse::<u32>() {
        return match packets {
            0 => Err(wrong()),
            _ => Ok(Limit::Packets(packets)),
        };
    }
    let (number, unit) = split(text).ok_or_else(wrong)?;
    // powers of two, as tc has them
    let factor = match unit.to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" | "k" => 1024.0,
        "mb" | "m" => 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    match (number * factor).round() {
        bytes if (1.0..=f64::from(u32::MAX)).contains(&bytes) => Ok(Limit::Bytes(bytes as u32)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_of_bits() {
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_rate("2.5Gbit"), Ok(2_500_000_000));
        for wrong in ["100", "1gb", "0mbit", "-1mbit", "mbit", "7bit", "nanmbit"] {
            assert!(
                parse_rate(wrong).is_err_and(|e| e.contains("1gbit")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_limit_is_in_packets_or_in_bytes_with_their_unit() {
        assert_eq!(parse_limit("100"), Ok(Limit::Packets(100)));
        assert_eq!(parse_limit("150kb"), Ok(Limit::Bytes(150 * 1024)));
        assert_eq!(parse_limit("1mb"), Ok(Limit::Bytes(1 << 20)));
        assert_eq!(parse_limit("1500b"), Ok(Limit::Bytes(1500)));
        for wrong in ["0", "-1", "0kb", "100p", "5gb", "kb", ""] {
            assert!(
                parse_limit(wrong).is_err_and(|e| e.contains("150kb")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_limit_in_bytes_holds_as_many_packets_as_shortest_frames() {
        assert_eq!(Limit::Bytes(6000).most_packets(), 100);
        assert_eq!(Limit::Bytes(6001).most_packets(), 101);
    }
}
