//! What all loaders do with a BPF object: they hold it, configure it, and read its counters and rings.

use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapMut, OpenObject, RingBuffer, RingBufferBuilder};

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

/// What is set before loading.
pub(crate) fn rodata<T>(data: Option<&mut T>) -> Result<&mut T, Error> {
    data.ok_or(Error::Bpf {
        doing: "configuring the BPF programs",
        source: io::Error::other("no .rodata").into(),
    })
}

/// A ring buffer whose events `take` puts into `into`, whenever it is consumed.
pub(crate) fn ring<T: Send + 'static>(
    map: &MapMut<'_>,
    into: &Arc<Mutex<T>>,
    take: fn(&mut T, &[u8]),
) -> Result<RingBuffer<'static>, Error> {
    let into = Arc::clone(into);
    let mut builder = RingBufferBuilder::new();
    let doing = "opening the ring buffer";
    builder
        .add(map, move |bytes| {
            take(
                &mut into.lock().unwrap_or_else(PoisonError::into_inner),
                bytes,
            );
            0
        })
        .map_err(Error::bpf(doing))?;
    builder.build().map_err(Error::bpf(doing))
}
