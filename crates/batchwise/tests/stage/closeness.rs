//! When two measured numbers agree.

/// Whether `a` is within `share` of `b`.
pub fn close(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * b.abs()
}
