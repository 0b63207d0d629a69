//! Lengths as codes, 8 to the octave, so that a difference of codes is a ratio of gaps.

/// Gaps are kept in units of 2^SHIFT ns.
pub const SHIFT: u32 = 4;
/// Steps in an octave.
pub const OCTAVE: u32 = 8;

/// ns to the units that gaps are kept in; what does not fit is beyond all that is kept.
pub fn units_of(ns: u64) -> u32 {
    u32::try_from(ns >> SHIFT).unwrap_or(u32::MAX)
}

/// The code of a gap in units.
pub fn code_of_units(units: u32) -> u8 {
    if units < OCTAVE {
        return units as u8;
    }
    let msb = units.ilog2();
    ((msb - 2) * OCTAVE + (units >> (msb - 3)) % OCTAVE) as u8
}

/// The code of a gap of some ns: the same for gaps that differ by less than 7 to 12 %.
pub fn code_of(ns: u64) -> u8 {
    code_of_units(units_of(ns))
}

/// The shortest gap, ns, that has a code.
pub fn floor_of(code: u8) -> u64 {
    let (octave, step) = (u32::from(code) / OCTAVE, u64::from(code) % 8);
    if octave == 0 {
        return step << SHIFT;
    }
    ((8 + step) << (octave - 1)) << SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codes_floor_has_that_code_and_what_is_shorter_has_not() {
        for code in 1..=239 {
            assert_eq!(code_of(floor_of(code)), code);
            assert_eq!(code_of(floor_of(code) - 1), code - 1);
        }
    }

    #[test]
    fn what_is_beyond_all_units_has_the_highest_code() {
        assert_eq!(code_of(u64::MAX), 239);
        assert_eq!(code_of(0), 0);
    }
}
