//! Which source file a function of the kernel is in. `functions.txt` is made from the sources of several
//! kernels by `make kernel-functions`; nobody edits it.

use alloc::vec::Vec;

/// A line a file: its path, and its functions.
const TABLE: &str = include_str!("functions.txt");

/// Names of functions, with the paths of their files.
#[derive(Clone, Debug)]
pub struct Functions(Vec<(&'static str, &'static str)>);

impl Default for Functions {
    fn default() -> Self {
        Self::of(TABLE)
    }
}

impl Functions {
    /// What such a table says. A name that files of different classes have is nobody's.
    pub fn of(table: &'static str) -> Self {
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let mut all: Vec<_> = lines
            .filter_map(|line| line.split_once(' '))
            .flat_map(|(path, names)| names.split(' ').map(move |name| (name, path)))
            .collect();
        all.sort_unstable();
        Self(all)
    }

    /// The files that have a function of this name.
    pub fn files(&self, name: &str) -> impl Iterator<Item = &'static str> + '_ {
        let first = self.0.partition_point(|(known, _)| *known < name);
        let same = self.0[first..].iter();
        let name = alloc::string::String::from(name);
        same.take_while(move |(known, _)| *known == name)
            .map(|(_, path)| *path)
    }
}
