//! Whole stacks, counted: for flame graphs and other tools. They are kept small, as random ones share nothing.

use batchwise_bpf::profile::Sample;
use batchwise_core::profile::{Component, Kernel};
use indexmap::{IndexMap, IndexSet};

/// Where a function is. Those of the kernel are known by now, those of user space by their address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Among the kernel's symbols. The innermost may be where interrupts are turned on again: its time was spent before.
    Kernel {
        symbol: Option<u32>,
        masked: bool,
    },
    User {
        pid: u32,
        address: u64,
    },
    /// What ran while interrupts were off.
    Masked,
}

/// What a stack is: numbers of the process's name and of places, the outermost first.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    pub process: u32,
    pub frames: Box<[u32]>,
}

/// Bytes that all of it may take, about.
const ROOM: usize = 10 << 20;
/// … of a stack, its functions apart.
const STACK: usize = 160;
/// … of a place, or of a process.
const ENTRY: usize = 80;

/// Stacks, and how often each was sampled.
#[derive(Debug, Default)]
pub struct Stacks {
    pub processes: IndexSet<String>,
    pub places: IndexSet<Place>,
    pub counts: IndexMap<Stack, u64>,
    /// Samples that are in no stack, as there were too many different ones.
    pub left_out: u64,
    bytes: usize,
}

impl Stacks {
    /// A sample more.
    pub fn add(&mut self, sample: &Sample, name: &str, component: Component, kernel: &Kernel) {
        let full = self.bytes >= ROOM;
        let stack = self.stack(sample, name, component, kernel, full);
        let stack = stack.filter(|stack| !full || self.counts.contains_key(stack));
        let count = match stack {
            None => &mut self.left_out,
            Some(stack) => {
                let (taken, bytes) = (&mut self.bytes, STACK + size_of_val(&*stack.frames));
                self.counts.entry(stack).or_insert_with(|| {
                    *taken += bytes;
                    0
                })
            }
        };
        *count += 1;
    }

    /// `None`: a part of it is new, and there is no room.
    fn stack(
        &mut self,
        sample: &Sample,
        name: &str,
        component: Component,
        kernel: &Kernel,
        full: bool,
    ) -> Option<Stack> {
        let process = self.processes.get_index_of(name);
        let process = match process {
            None if full => return None,
            None => {
                self.bytes += ENTRY;
                self.processes.insert_full(name.to_owned()).0
            }
            Some(process) => process,
        };
        let pid = sample.pid;
        let user = sample.user.iter().rev();
        let user = user.map(|address| Place::User {
            pid,
            address: *address,
        });
        let is_masked = component == Component::Masked;
        let inside = sample.kernel.iter().enumerate().rev();
        let inside = inside.map(|(depth, at)| Place::Kernel {
            symbol: kernel.position(*at).map(|at| at as u32),
            masked: is_masked && depth == 0,
        });
        let inside = inside.chain(is_masked.then_some(Place::Masked));
        let frames = user.chain(inside).map(|place| {
            if full {
                return self.places.get_index_of(&place).map(|place| place as u32);
            }
            let (number, is_new) = self.places.insert_full(place);
            self.bytes += if is_new { ENTRY } else { 0 };
            Some(number as u32)
        });
        Some(Stack {
            process: process as u32,
            frames: frames.collect::<Option<_>>()?,
        })
    }
}
