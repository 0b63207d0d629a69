//! The clock that times requests: the time stamp counter where the kernel itself trusts it, since
//! reading it costs a third of `clock_gettime`.

use std::sync::OnceLock;

use crate::layout::{CLOCK_MONOTONIC, CLOCK_TSC};

/// [`CLOCK_TSC`] or [`CLOCK_MONOTONIC`]: the same for the whole process, and for every process of
/// the machine that can see how the kernel decided.
pub fn kind() -> u32 {
    static KIND: OnceLock<u32> = OnceLock::new();
    *KIND.get_or_init(|| {
        if tsc::is_trusted() {
            CLOCK_TSC
        } else {
            CLOCK_MONOTONIC
        }
    })
}

/// The clock of this kind, ticks. 0 for a kind that this machine does not have.
#[inline(always)]
pub fn ticks(kind: u32) -> u64 {
    match kind {
        CLOCK_TSC => tsc::read(),
        CLOCK_MONOTONIC => monotonic_ns(),
        _ => 0,
    }
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    kernels_ns(libc::CLOCK_MONOTONIC)
}

/// How long the machine was suspended since it was booted, ns.
#[cfg(feature = "reader")]
pub fn suspended_ns() -> u64 {
    let monotonic = monotonic_ns();
    kernels_ns(libc::CLOCK_BOOTTIME).saturating_sub(monotonic)
}

fn kernels_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPUs that the machine can have.
#[cfg(feature = "reader")]
pub fn cpus() -> usize {
    // SAFETY: it takes a number and reads the system's settings.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    cpus.try_into().unwrap_or(1)
}

/// The clock and CLOCK_MONOTONIC (ns) at the same moment: of several tries the one that was
/// disturbed least.
pub fn pair(kind: u32) -> (u64, u64) {
    if kind == CLOCK_MONOTONIC {
        let now = monotonic_ns();
        return (now, now);
    }
    let attempt = || {
        let before = ticks(kind);
        let ns = monotonic_ns();
        let took = ticks(kind).wrapping_sub(before);
        (took, (before.wrapping_add(took / 2), ns))
    };
    (0..5).map(|_| attempt()).min().unwrap_or_default().1
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::fs;

    const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    #[inline(always)]
    pub fn read() -> u64 {
        // SAFETY: every x86-64 has the instruction; where the kernel forbids it to processes
        // (PR_SET_TSC), is_trusted() has not let it be used.
        unsafe { _rdtsc() }
    }

    /// The counter's rate is constant, and the kernel, which watches that the CPUs' counters
    /// agree, tells time by it.
    pub fn is_trusted() -> bool {
        let leaf = __cpuid(0x8000_0000).eax;
        let invariant = leaf >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
        let source = || fs::read_to_string(CLOCK_SOURCE);
        invariant && may_read() && source().is_ok_and(|s| s.trim() == "tsc")
    }

    fn may_read() -> bool {
        let mut mode: libc::c_int = 0;
        // SAFETY: PR_GET_TSC writes an int to the address.
        let known = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) } == 0;
        known && mode == libc::PR_TSC_ENABLE
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tsc {
    pub fn read() -> u64 {
        0
    }

    pub fn is_trusted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_clock_is_paired_with_itself() {
        for _ in 0..1000 {
            let (ticks, ns) = pair(CLOCK_MONOTONIC);
            assert_eq!(ticks, ns);
        }
    }

    #[test]
    fn a_clock_does_not_step_back_and_its_pair_is_of_one_moment() {
        let kind = kind();
        let first = ticks(kind);
        let before = monotonic_ns();
        let (tick, ns) = pair(kind);
        assert!(first <= tick && tick <= ticks(kind));
        assert!(before <= ns && ns <= monotonic_ns());
    }
}
