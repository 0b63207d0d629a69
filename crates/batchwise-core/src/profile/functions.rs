//! Which source file a function of the kernel is in, from a table that the caller has.

use alloc::vec::Vec;

/// Names of functions, with the paths of their files.
#[derive(Clone, Debug)]
pub struct Functions<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Functions<'a> {
    /// What a table says: a line a file, its path and its functions. Lines that begin with `#` are comments.
    pub fn of(table: &'a str) -> Self {
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let mut all: Vec<_> = lines
            .filter_map(|line| line.split_once(' '))
            .flat_map(|(path, names)| names.split(' ').map(move |name| (name, path)))
            .collect();
        all.sort_unstable();
        Self(all)
    }

    /// The files that have a function of this name.
    pub fn files(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let first = self.0.partition_point(|(known, _)| *known < name);
        let from = &self.0[first..];
        let same = from.partition_point(|(known, _)| *known == name);
        from[..same].iter().map(|(_, path)| *path)
    }
}
