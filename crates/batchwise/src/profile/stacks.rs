//! Whole stacks, counted: for flame graphs and other tools.

use std::collections::HashMap;

use batchwise_bpf::profile::Sample;
use batchwise_core::profile::Attributed;

/// What a stack is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    pub pid: u32,
    /// Of the process.
    pub name: String,
    /// The innermost first.
    pub kernel: Vec<u64>,
    pub user: Vec<u64>,
}

/// Different ones that are kept, at most: about 30 MB.
const MOST: usize = 40_000;

/// Stacks, and how often each was sampled.
#[derive(Debug, Default)]
pub struct Stacks {
    counts: HashMap<Stack, (Attributed, u64)>,
    left_out: u64,
}

impl Stacks {
    /// A sample more.
    pub fn add(&mut self, sample: Sample, name: &str, at: Attributed) {
        let stack = Stack {
            pid: sample.pid,
            name: name.to_owned(),
            kernel: sample.kernel,
            user: sample.user,
        };
        if let Some((_, count)) = self.counts.get_mut(&stack) {
            *count += 1;
        } else if self.counts.len() < MOST {
            self.counts.insert(stack, (at, 1));
        } else {
            self.left_out += 1;
        }
    }

    /// All, with what each is counted as.
    pub fn iter(&self) -> impl Iterator<Item = (&Stack, Attributed, u64)> {
        self.counts.iter().map(|(stack, (at, n))| (stack, *at, *n))
    }

    /// Samples that are in no stack, as there were too many different ones.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
