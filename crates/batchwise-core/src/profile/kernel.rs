//! The functions of the kernel that runs, by address.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::rules::Class;
use super::{Functions, of_function, of_path};

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it begins.
    pub address: u64,
    /// As in `/proc/kallsyms`.
    pub name: String,
    /// The module that it is of.
    pub module: Option<String>,
    /// `None`: neither name nor neighbours say.
    pub class: Option<Class>,
}

/// All functions, by address.
#[derive(Clone, Debug, Default)]
pub struct Kernel(Vec<Symbol>);

impl Kernel {
    /// From the lines of `/proc/kallsyms`. `directory` says where in the sources a module is.
    pub fn of<'a>(
        kallsyms: impl Iterator<Item = &'a str>,
        functions: &Functions<'_>,
        directory: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut symbols: Vec<_> = kallsyms.filter_map(parse).collect();
        // of several names at an address the first is taken, as perf does
        symbols.sort_by_key(|symbol| symbol.address);
        symbols.dedup_by_key(|symbol| symbol.address);
        for symbol in &mut symbols {
            symbol.class = by_name(&symbol.name, functions).or_else(|| {
                let module = symbol.module.as_deref()?;
                match module {
                    "bpf" => of_function("bpf_prog_"),
                    _ => directory(module).as_deref().map(of_path),
                }
            });
        }
        by_neighbours(&mut symbols);
        Self(symbols)
    }

    /// The function that an address is in.
    pub fn find(&self, address: u64) -> Option<&Symbol> {
        self.0.get(self.position(address)?)
    }

    /// Its place among [`Kernel::symbols`].
    pub fn position(&self, address: u64) -> Option<usize> {
        let after = self.0.partition_point(|symbol| symbol.address <= address);
        after.checked_sub(1)
    }

    /// All functions, by address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.0
    }
}

fn parse(line: &str) -> Option<Symbol> {
    let mut fields = line.split_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?;
    let name = fields.next()?;
    let module = fields.next().map(|module| module.trim_matches(['[', ']']));
    // padding before a function has the function's name, and is never run
    let is_padding = name.starts_with("__pfx_");
    let is_function = matches!(kind, "t" | "T" | "w" | "W");
    (is_function && !is_padding).then(|| Symbol {
        address,
        name: name.to_owned(),
        module: module.map(ToOwned::to_owned),
        class: None,
    })
}

/// What the compiler makes of a function has its name and a suffix.
fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn by_name(name: &str, functions: &Functions<'_>) -> Option<Class> {
    let name = base(name);
    if let Some(class) = of_function(name) {
        return Some(class);
    }
    let mut classes = functions.files(name).map(of_path);
    let first = classes.next()?;
    classes.all(|class| class == first).then_some(first)
}

/// The linker puts the functions of a file, and files of a directory, beside each other: one that is between
/// two of a class is of that class, too.
fn by_neighbours(symbols: &mut [Symbol]) {
    let mut before: Option<(usize, Class)> = None;
    for at in 0..symbols.len() {
        let Some(class) = symbols[at].class else {
            continue;
        };
        if let Some((since, same)) = before
            && same == class
            && symbols[since].module == symbols[at].module
        {
            symbols[since + 1..at]
                .iter_mut()
                .for_each(|symbol| symbol.class = Some(class));
        }
        // what has a class by its name alone says nothing of its neighbours
        if of_function(base(&symbols[at].name)).is_none() {
            before = Some((at, class));
        }
    }
}
