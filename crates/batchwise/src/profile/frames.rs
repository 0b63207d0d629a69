//! Names for the places of stacks: the kernel's functions, and those of user space where the processes' files
//! have symbols. A name is kept once.

use std::fmt::{self, Write as _};

use batchwise_core::profile::{Class, Component, Kernel};
use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolizer};
use cpp_demangle::DemangleOptions;
use indexmap::IndexSet;

use super::stacks::{Place, Stacks};

/// A function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: String,
    /// Whose it is; none: whoever calls it.
    pub component: Option<Component>,
}

/// A stack with names: numbers of its process and of its functions, the outermost first.
#[derive(Debug)]
pub struct Named {
    pub process: u32,
    pub frames: Box<[u32]>,
    pub count: u64,
}

/// All stacks with names.
#[derive(Debug, Default)]
pub struct Graph {
    pub functions: Vec<Function>,
    pub processes: Vec<String>,
    /// Sorted: those that begin alike are neighbours.
    pub stacks: Vec<Named>,
}

/// The process of samples that are in no stack.
const LEFT_OUT: &str = "(no room for more stacks)";
const UNKNOWN: &str = "[unknown]";
/// Characters of a name; templates have thousands.
const LONGEST: usize = 200;
/// Bytes of names that are kept: of a process that makes functions without end, the rest are unknown.
const MOST: usize = 4 << 20;
/// Addresses that are looked up at once.
const AT_ONCE: usize = 256;

/// Gives all of them names; those of user space where processes are `numbered` as in the stacks.
pub fn name(stacks: Stacks, kernel: &Kernel, numbered: bool) -> Graph {
    let (functions, numbers) = functions(&stacks.places, kernel, numbered);
    let number = |place: &u32| numbers[*place as usize];
    let mut processes: Vec<String> = stacks.processes.iter().map(|name| clean(name)).collect();
    let named = stacks.counts.into_iter().map(|(stack, count)| Named {
        process: stack.process,
        frames: stack.frames.iter().map(number).collect(),
        count,
    });
    let mut named: Vec<_> = named.collect();
    if stacks.left_out > 0 {
        named.push(Named {
            process: processes.len() as u32,
            frames: Box::default(),
            count: stacks.left_out,
        });
        processes.push(LEFT_OUT.to_owned());
    }
    named.sort_unstable_by(|a, b| (a.process, &a.frames).cmp(&(b.process, &b.frames)));
    // the same functions at other addresses
    named.dedup_by(|next, kept| {
        let same = (next.process, &next.frames) == (kept.process, &kept.frames);
        kept.count += if same { next.count } else { 0 };
        same
    });
    Graph {
        functions: functions.into_iter().collect(),
        processes,
        stacks: named,
    }
}

/// A name in one short line.
fn clean(name: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    name.chars().take(LONGEST).map(plain).collect()
}

/// All functions, and which of them each place is in.
fn functions(
    places: &IndexSet<Place>,
    kernel: &Kernel,
    numbered: bool,
) -> (IndexSet<Function>, Vec<u32>) {
    let mut functions = IndexSet::new();
    let of_user = |name: &str| Function {
        name: clean(name),
        component: Some(Component::Application),
    };
    let unknown = functions.insert_full(of_user(UNKNOWN)).0 as u32;
    let mut numbers = vec![unknown; places.len()];
    let mut users = Vec::new();
    for (place, number) in places.iter().zip(0..) {
        match *place {
            Place::User { pid, address } if numbered => users.push((pid, address, number)),
            Place::User { .. } => {}
            Place::Kernel { symbol, masked } => {
                let mut function = of_kernel(symbol, kernel);
                if masked {
                    function.component = Some(Component::Masked);
                }
                numbers[number] = functions.insert_full(function).0 as u32;
            }
            Place::Masked => {
                let function = Function {
                    name: Component::Masked.label().to_owned(),
                    component: Some(Component::Masked),
                };
                numbers[number] = functions.insert_full(function).0 as u32;
            }
        }
    }
    users.sort_unstable();
    let mut bytes = 0;
    for process in users.chunk_by(|(pid, ..), (next, ..)| pid == next) {
        // a symbolizer keeps what it has read: one for each process keeps less
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        for part in process.chunks(AT_ONCE) {
            for (number, name) in look_up(&symbolizer, part) {
                let function = of_user(&name);
                let length = function.name.len();
                if bytes + length > MOST {
                    break;
                }
                let (at, is_new) = functions.insert_full(function);
                bytes += if is_new { length } else { 0 };
                numbers[number] = at as u32;
            }
        }
    }
    (functions, numbers)
}

fn of_kernel(symbol: Option<u32>, kernel: &Kernel) -> Function {
    let symbol = symbol.and_then(|at| kernel.symbols().get(at as usize));
    let name = symbol.map_or(UNKNOWN, |symbol| &symbol.name);
    Function {
        // as other tools mark what is the kernel's
        name: format!("{name}_[k]"),
        component: match symbol.and_then(|symbol| symbol.class) {
            Some(Class::Of(component)) => Some(component),
            Some(Class::Callers) => None,
            None => Some(Component::Unclassified),
        },
    }
}

/// Names of a process's addresses, by their number. One that is gone has none.
fn look_up(symbolizer: &Symbolizer, part: &[(u32, u64, usize)]) -> Vec<(usize, String)> {
    let pid = part.first().map_or(0, |(pid, ..)| *pid);
    let mut process = Process::new(Pid::from(pid));
    // a file in /tmp that anyone can make a link, a pipe or endless
    process.perf_map = false;
    // file and line are not shown, and debug information is large
    process.debug_syms = false;
    let addresses: Vec<_> = part.iter().map(|(_, address, _)| *address).collect();
    let found = symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(&addresses));
    let found = part.iter().zip(found.into_iter().flatten());
    let named = found.filter_map(|((.., number), symbol)| {
        let symbol = symbol.into_sym()?;
        Some((*number, readable(&symbol.name)))
    });
    named.collect()
}

/// The name as it is in the source, of C++ and Rust too.
fn readable(symbol: &str) -> String {
    let mut short = Short(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        // without the hash; ends with an error where it is too long
        let _ = write!(short, "{name:#}");
    } else if let Ok(name) = cpp_demangle::BorrowedSymbol::new(symbol.as_bytes()) {
        let _ = name.structured_demangle(&mut short, &DemangleOptions::default());
    }
    match short.0 {
        name if name.is_empty() => symbol.chars().take(LONGEST).collect(),
        name => name,
    }
}

/// The beginning of a text: names that are made to be so grow without end when they are demangled.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend(text.chars().take(LONGEST));
        match self.0.len() {
            0..=LONGEST => Ok(()),
            _ => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchwise_bpf::profile::Sample;

    #[test]
    fn names_are_as_in_the_source_and_short() {
        for (symbol, name) in [
            ("main", "main"),
            ("_ZN3foo3barEv", "foo::bar()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_ZNK3ptrptEv", "ptr::operator->() const"),
        ] {
            assert_eq!(readable(symbol), name);
        }
        let long = format!("_ZN{}Ev", "3foo".repeat(1_000));
        assert!(readable(&long).len() <= 2 * LONGEST);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_shown_as_such() {
        let kernel = Kernel::default();
        let mut stacks = Stacks::default();
        let all = 100_000;
        for first in 0..all {
            let sample = Sample {
                pid: 1,
                cpu: 0,
                name: String::new(),
                kernel: Vec::new(),
                user: std::iter::once(all + first).chain(0..47).collect(),
            };
            stacks.add(&sample, "a\nb", Component::Application, &kernel);
        }
        let graph = name(stacks, &kernel, false);
        let count = |is: fn(&str) -> bool| {
            let of_it = graph.stacks.iter();
            let of_it = of_it.filter(|s| is(&graph.processes[s.process as usize]));
            of_it.map(|stack| stack.count).sum::<u64>()
        };
        let (kept, left_out) = (count(|name| name == "a?b"), count(|name| name == LEFT_OUT));
        assert!(kept > 0 && left_out > 0, "{kept} {left_out}");
        assert_eq!(kept + left_out, all);
    }
}
