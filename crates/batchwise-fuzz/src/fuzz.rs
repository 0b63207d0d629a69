//! What libFuzzer calls with each input.
#![no_main]

use std::ffi::c_int;
use std::sync::LazyLock;

use batchwise_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("BATCHWISE_FUZZ").unwrap_or_default();
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.expect("BATCHWISE_FUZZ names a target").1
});

/// A panic ends the process here: nothing unwinds through C.
///
/// # Safety
/// So many bytes can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int {
    let input = match size {
        0 => &[], // which may have no address
        // SAFETY: as above.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    (*TARGET)(input);
    0
}
