//! What all loaders do with a BPF object: they hold it, and read its counters.

use std::mem::MaybeUninit;

use libbpf_rs::{MapCore, MapFlags, OpenObject};

use crate::Error;
use crate::plain::{Plain, read};

/// Where a skeleton's object is. The skeleton borrows it, so who is to own the skeleton alone needs
/// one that is never freed: a few bytes for each load.
pub(crate) fn holder() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// What each CPU has at an index of a map; `doing` says what for, should the kernel not let us.
pub(crate) fn percpu<T: Plain>(
    map: &impl MapCore,
    index: u32,
    doing: &'static str,
) -> Result<impl Iterator<Item = T>, Error> {
    let cpus = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
    let cpus = cpus.map_err(Error::bpf(doing))?;
    Ok(cpus.into_iter().flatten().filter_map(|value| read(&value)))
}
