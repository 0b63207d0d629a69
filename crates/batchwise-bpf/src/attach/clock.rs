//! What ticks on a CPU, to sample it by: the processor's counter of cycles, or a timer (perf_event_open(2)).

use std::fs;
use std::io::{self, Read as _};
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use batchwise_core::profile::report::Clock;
use libbpf_sys::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC,
    PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use nix::libc;

/// The processor's counter where there is one, else a timer; and how much of it passes in a second.
pub(crate) fn best_clock() -> io::Result<(Clock, f64)> {
    let open = |clock, speed| open_clock(clock, 0, speed as u64).map(|_| (clock, speed));
    let cycles = cycles_a_second().and_then(|speed| open(Clock::Cycles, speed));
    cycles.or_else(|_| open(Clock::Timer, 1e9))
}

/// It is counted for so long how fast the processor is.
const CALIBRATE: Duration = Duration::from_millis(20);

/// Cycles a second of this thread while it works: the period of samples is fixed by it. One that the kernel adapts would give
/// the samples of an idle CPU, of which it takes as many, the weight of those of a busy one.
fn cycles_a_second() -> io::Result<f64> {
    let mut attr = clock_attr(Clock::Cycles);
    attr.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING.into();
    let mut counter = fs::File::from(open(&attr, 0, -1)?);
    let until = Instant::now() + CALIBRATE;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let mut counted = [0; 16];
    counter.read_exact(&mut counted)?;
    let (cycles, ns) = counted.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes) as f64;
    let speed = number(cycles) * 1e9 / number(ns);
    let is_plausible = speed.is_finite() && speed >= 1e6;
    is_plausible
        .then_some(speed)
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// The clock of a CPU that ticks each time so much of it has passed.
pub(crate) fn open_clock(clock: Clock, cpu: u32, period: u64) -> io::Result<OwnedFd> {
    let mut attr = clock_attr(clock);
    attr.__bindgen_anon_1.sample_period = period;
    open(&attr, -1, cpu as i32)
}

fn clock_attr(clock: Clock) -> perf_event_attr {
    let (kind, config) = match clock {
        Clock::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
        Clock::Timer => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
    };
    perf_event_attr {
        type_: kind,
        size: size_of::<perf_event_attr>() as u32,
        config: config.into(),
        ..Default::default()
    }
}

/// Of a thread (0: this one) or of all (-1), on a CPU or on all (-1).
fn open(attr: &perf_event_attr, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is as long as it says; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            thread,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match fd {
        0.. => {
            // SAFETY: the kernel has just opened it for us.
            Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}
