//! What the programs and the agent share while both run: each may write it at any time, so there is no reference to it.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::Error;
use crate::object::rodata;
use crate::sense_skel::types;

/// The programs' variables.
#[derive(Debug)]
pub(crate) struct Shared(NonNull<types::bss>);

// SAFETY: all use of it is volatile or atomic, whoever's it is.
unsafe impl Send for Shared {}

impl Shared {
    /// Of the skeleton, which keeps them mapped: the sensor has both.
    pub fn new(data: Option<&'static mut types::bss>) -> Result<Self, Error> {
        Ok(Self(NonNull::from(rodata(data)?)))
    }

    /// Where they are.
    pub fn all(&self) -> *mut types::bss {
        self.0.as_ptr()
    }

    /// Entries of connections, that a walk hands over.
    pub fn page(&self) -> *const [u8] {
        // SAFETY: it is mapped as long as the sensor is there.
        unsafe { &raw const (*self.all()).page.bytes }
    }

    /// So many CPUs have counters of their own.
    pub fn cpus(&self) -> usize {
        // SAFETY: as above.
        let runs: *const [types::sense_runs] = unsafe { &raw const (*self.all()).runs };
        runs.len()
    }

    /// One that both sides change.
    pub fn tally(&self, which: Tally) -> &AtomicU64 {
        let all = self.all();
        // SAFETY: it is aligned, mapped as long as the sensor is there, and not used otherwise.
        unsafe {
            AtomicU64::from_ptr(match which {
                Tally::PageUsed => &raw mut (*all).page.used,
                Tally::TailsTaken => &raw mut (*all).tails_taken,
                Tally::TailsHeld => &raw mut (*all).tails_held,
                Tally::TailsWanted => &raw mut (*all).tails_wanted,
            })
        }
    }
}

/// What both sides change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tally {
    /// Bytes of the page.
    PageUsed,
    /// Histograms that services have, a bit each.
    TailsTaken,
    /// Likewise those that connections have.
    TailsHeld,
    /// Connections that have none.
    TailsWanted,
}

/// The value of a variable now.
macro_rules! load {
    ($shared:expr, $($field:tt)+) => {{
        let all = $shared.all();
        // SAFETY: it is aligned, and mapped as long as the sensor is there.
        unsafe { (&raw const (*all).$($field)+).read_volatile() }
    }};
}

/// Gives a variable another value.
macro_rules! store {
    ($shared:expr, $field:ident $([$index:expr])?, $value:expr) => {{
        let (all, value) = ($shared.all(), $value);
        // SAFETY: it is aligned, and mapped as long as the sensor is there.
        unsafe { (&raw mut (*all).$field $([$index])?).write_volatile(value) }
    }};
}

pub(crate) use {load, store};
