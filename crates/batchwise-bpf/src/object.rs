//! What all loaders do with a BPF object: they hold it, configure it, and read its counters and rings.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapMut, OpenObject, RingBuffer, RingBufferBuilder};

use crate::Error;
use crate::plain::{Plain, read};

/// Where a skeleton's object is. The skeleton borrows it, so who is to own the skeleton alone needs
/// one that is never freed: a few bytes for each load.
pub fn holder() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

type Opened<B> = <B as SkelBuilder<'static>>::Output;
type Loaded<B> = <Opened<B> as OpenSkel<'static>>::Output;

/// Opens an object, has `configure` set what is set before loading, and loads it.
pub(crate) fn load<B>(
    configure: impl FnOnce(&mut Opened<B>) -> Result<(), Error>,
) -> Result<Loaded<B>, Error>
where
    B: SkelBuilder<'static> + Default,
{
    let open = B::default().open(holder());
    let mut open = open.map_err(Error::bpf("opening the BPF object"))?;
    configure(&mut open)?;
    open.load().map_err(Error::bpf("loading the BPF programs"))
}

/// What a call of libbpf gave, which says errors as negative numbers.
pub(crate) fn done(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(result)
}

/// The descriptor that a call of libbpf has just made.
pub(crate) fn made(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: the caller says that it is new, so nobody else has it.
    done(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The smallest program of its kind: it returns 0. By hand, since libbpf writes of a program that is refused.
pub(crate) fn smallest(
    kind: libbpf_sys::bpf_prog_type,
    attached: libbpf_sys::bpf_attach_type,
    attach_btf_id: u32,
) -> io::Result<OwnedFd> {
    let ins = |code: u32| libbpf_sys::bpf_insn {
        code: code as u8,
        ..Default::default()
    };
    let returns_0 = [
        ins(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K),
        ins(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT),
    ];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: attached,
        attach_btf_id,
        ..Default::default()
    };
    // SAFETY: what is pointed to lives until the call ends, and is as long as it says.
    made(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"bw_smallest".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            returns_0.as_ptr(),
            returns_0.len() as _,
            &raw mut options,
        )
    })
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

/// What the kernel says of a program; all 0 where it says nothing.
pub(crate) fn info(program: BorrowedFd<'_>) -> libbpf_sys::bpf_prog_info {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is as long as `len` says, and asks for nothing that it points to.
    let error = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if error == 0 { info } else { Default::default() }
}

/// How often the kernel left a run of the program out, since the program was running on that CPU
/// already and was interrupted (`prog->active`). 0 where the kernel does not say.
pub(crate) fn skipped_runs(program: BorrowedFd<'_>) -> u64 {
    info(program).recursion_misses
}

/// What is set before loading.
pub(crate) fn rodata<T>(data: Option<&mut T>) -> Result<&mut T, Error> {
    data.ok_or(Error::Bpf {
        doing: "configuring the BPF programs",
        cause: io::Error::other("no .rodata").into(),
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
