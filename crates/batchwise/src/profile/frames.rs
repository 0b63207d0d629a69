//! Names for the addresses of stacks: the kernel's functions, and those of user space where the processes'
//! files have symbols.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use batchwise_core::profile::{Attributed, Class, Component, Kernel};
use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolizer};

use super::stacks::{Stack, Stacks};

/// A function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    pub name: String,
    /// Whose it is; none: whoever calls it.
    pub component: Option<Component>,
}

/// A stack with names, the outermost function first.
pub struct Named {
    pub process: String,
    pub frames: Vec<Frame>,
    pub at: Attributed,
    pub count: u64,
}

/// All stacks with names.
pub fn name(stacks: &Stacks, kernel: &Kernel) -> Vec<Named> {
    let users = users(stacks);
    let frames = |stack: &Stack| {
        let user = stack.user.iter().rev().map(|address| Frame {
            name: match users.get(&(stack.pid, *address)) {
                Some(name) => name.clone(),
                None => "[unknown]".to_owned(),
            },
            component: Some(Component::Application),
        });
        let kernel = stack
            .kernel
            .iter()
            .rev()
            .map(|address| match kernel.find(*address) {
                Some(symbol) => Frame {
                    // as other tools mark what is the kernel's
                    name: format!("{}_[k]", symbol.name),
                    component: match symbol.class {
                        Some(Class::Of(component)) => Some(component),
                        Some(Class::Callers) => None,
                        None => Some(Component::Unclassified),
                    },
                },
                None => Frame {
                    name: "[unknown]_[k]".to_owned(),
                    component: Some(Component::Unclassified),
                },
            });
        user.chain(kernel).collect()
    };
    let named = |(stack, at, count): (&Stack, Attributed, u64)| Named {
        process: stack.name.clone(),
        frames: frames(stack),
        at,
        count,
    };
    stacks.iter().map(named).collect()
}

/// Functions of user space, by process and address. One that is gone has none.
fn users(stacks: &Stacks) -> HashMap<(u32, u64), String> {
    let mut addresses: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for (stack, ..) in stacks.iter() {
        addresses.entry(stack.pid).or_default().extend(&stack.user);
    }
    let mut names = HashMap::new();
    for (pid, addresses) in addresses {
        // a symbolizer keeps what it has read: one for each process keeps less
        let symbolizer = Symbolizer::new();
        let mut process = Process::new(Pid::from(pid));
        // file and line are not shown, and debug information is large
        process.debug_syms = false;
        let addresses: Vec<_> = addresses.into_iter().collect();
        let found = symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(&addresses));
        for (address, symbol) in addresses.iter().zip(found.into_iter().flatten()) {
            if let Some(symbol) = symbol.into_sym() {
                names.insert((pid, *address), symbol.name.into_owned());
            }
        }
    }
    names
}
