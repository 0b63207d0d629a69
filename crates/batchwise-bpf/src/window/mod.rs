//! Window space: the loader of the programs that wake an application when TCP can send on a socket.

use std::collections::HashSet;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs::File, io};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType};

use nix::libc;

use crate::Error;
use crate::attach::cgroup::Cgroup;
use crate::attach::walk;
use crate::features::{self, Machine, Subcommand};
use crate::object::load;
use crate::plain::{bytes, read};
use crate::window_skel::{WindowSkel, WindowSkelBuilder, types};

/// Applications at a time.
pub const MOST_APPS: u32 = types::window_bound::WINDOW_APPS.0;

/// Ports of applications that do not ask themselves.
pub const MOST_GATES: usize = types::window_bound::WINDOW_GATES.0 as usize;

/// Of the agent's setsockopt() on a socket that it registers.
const LEVEL: i32 = types::window_bound::WINDOW_LEVEL.0 as i32;
/// Any: the programs go by the level.
const OPTION: i32 = 1;

/// The programs, attached to a cgroup and all below it; detached when dropped.
pub struct Window {
    // before the programs: what is attached goes first
    _links: Vec<Link>,
    pub(crate) skel: WindowSkel<'static>,
    cgroup: Option<Cgroup>,
    maps: Link,
    /// Generation of the last application.
    last: u32,
}

// SAFETY: libbpf's objects belong to no thread, and nothing outside holds a part of this one.
unsafe impl Send for Window {}

/// What an application shares with the kernel.
#[derive(Debug)]
pub struct App {
    /// Its number, and which application it is that has this number, from 1.
    pub id: (u32, u32),
    /// An array of `struct window_slot`, to be mapped.
    pub slots: OwnedFd,
    /// The number that the kernel gave it.
    pub memory: u32,
}

impl Window {
    /// Loads the programs, and attaches them to this cgroup. Connections to and from the ports `gates` (at
    /// most [`MOST_GATES`]) that are made from then on have TCP_NOTSENT_LOWAT at 1.
    ///
    /// # Errors
    /// When the kernel does not allow it; it says the remedy.
    pub fn attach(cgroup: &Path, gates: &[u16]) -> Result<Self, Error> {
        let mut window = Self::load()?;
        if let Some(bss) = window.skel.maps.bss_data.as_deref_mut() {
            for (gate, port) in bss.gates.iter_mut().zip(gates) {
                *gate = (*port).into();
            }
        }
        let cgroup = Cgroup::open(cgroup)?;
        let folder = File::open(&cgroup.path).map_err(Error::io("opening the cgroup"))?;
        let programs = &window.skel.progs;
        for program in [&programs.window_acked, &programs.window_register] {
            let link = program.attach_cgroup(folder.as_raw_fd());
            let attached = link.map_err(Error::bpf("attaching to the cgroup"))?;
            window._links.push(attached);
        }
        window.cgroup = Some(cgroup);
        Ok(window)
    }

    /// Whether the cgroup still is the one that it was attached to.
    ///
    /// # Errors
    /// When it is not; it says what to do.
    pub fn check(&self) -> Result<(), Error> {
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::check)
    }

    /// Loads the programs, and attaches them nowhere.
    pub(crate) fn load() -> Result<Self, Error> {
        features::require(&Machine::look(), Subcommand::Window)?;
        let namespace = std::fs::metadata("/proc/self/ns/pid");
        let namespace = namespace.map_err(Error::io("looking at our PID namespace"))?;
        let mut skel = load::<WindowSkelBuilder>(|_| Ok(()))?;
        if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
            bss.agent = std::process::id();
            // the kernel's dev_t has 20 bits for the minor number (MKDEV, linux/kdev_t.h)
            let (dev, inode) = (namespace.dev(), namespace.ino());
            bss.namespace_dev = u64::from(libc::major(dev)) << 20 | u64::from(libc::minor(dev));
            bss.namespace_inode = inode;
        }
        let maps = skel.progs.window_memories.attach();
        let maps = maps.map_err(Error::bpf("creating the iterator of maps"))?;
        Ok(Self {
            _links: Vec::new(),
            skel,
            cgroup: None,
            maps,
            last: 0,
        })
    }

    /// Connections that got their low water, so far.
    pub fn gated(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| bss.gated)
    }

    /// Makes an application's memory: so many slots.
    pub fn app(&mut self, number: u32, slots: u32) -> Result<App, Error> {
        let making = |error| Error::bpf("making an application's memory")(error);
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP,
            ..Default::default()
        };
        let (key, value) = (
            size_of::<u32>() as u32,
            size_of::<types::window_slot>() as u32,
        );
        let slots = MapHandle::create(
            MapType::Array,
            Some("bw_slots"),
            key,
            value,
            slots,
            &options,
        );
        let slots = slots.map_err(making)?;
        let memory = slots.info().map_err(making)?.info.id;
        let fd = slots.as_fd().as_raw_fd().to_ne_bytes();
        let outer = &self.skel.maps.slots;
        outer
            .update(&number.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(making)?;
        let slots = slots.as_fd().try_clone_to_owned();
        self.last = self.last.wrapping_add(1).max(1);
        self.set_generation(number, self.last);
        Ok(App {
            id: (number, self.last),
            slots: slots.map_err(Error::io("copying a descriptor"))?,
            memory,
        })
    }

    /// The kernel's numbers of all maps that there are: an application's memory stays for as long as it keeps it.
    pub fn memories(&self) -> Result<HashSet<u32>, Error> {
        let bytes = walk::run(self.maps.as_fd()).map_err(Error::io("looking for memory"))?;
        let numbers = bytes.chunks_exact(size_of::<u32>()).filter_map(read::<u32>);
        Ok(numbers.collect())
    }

    /// Takes an application's memory away from the programs: its sockets ring no more.
    pub fn forget(&mut self, number: u32) {
        self.set_generation(number, 0);
        // one that is not there was never given
        let _ = self.skel.maps.slots.delete(&number.to_ne_bytes());
    }

    fn set_generation(&mut self, number: u32, generation: u32) {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        let of_number = bss.and_then(|bss| bss.generations.get_mut(number as usize));
        of_number.into_iter().for_each(|it| *it = generation);
    }

    /// From now on the socket rings for the slot of this application, as long as that has this `turn`.
    /// Whoever holds the socket's lock decides how long this takes.
    ///
    /// # Errors
    /// When it is not TCP's, or not in the cgroup.
    pub fn register(
        socket: BorrowedFd<'_>,
        (app, generation): (u32, u32),
        slot: u32,
        turn: u32,
    ) -> io::Result<()> {
        let registration = types::window_registration {
            app,
            generation,
            slot,
            turn,
            flags: 0,
        };
        let value = bytes(&registration);
        // SAFETY: the kernel, and our program, read so many bytes.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                LEVEL,
                OPTION,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
