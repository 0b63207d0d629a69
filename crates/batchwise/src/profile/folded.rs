//! Folded stacks: a line each, functions from the outermost to the innermost, and how often it was sampled. What
//! flame graph tools take.

use std::collections::BTreeMap;

use super::frames::Named;

/// The lines, sorted.
pub fn lines(stacks: &[Named]) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let names = stack.frames.iter().map(|frame| frame.name.as_str());
        let process = std::iter::once(stack.process.as_str());
        // a semicolon in a name would be a function more
        let names = process.chain(names).map(|name| name.replace(';', ":"));
        let line = names.collect::<Vec<_>>().join(";");
        *counts.entry(line).or_default() += stack.count;
    }
    let line = |(stack, count)| format!("{stack} {count}");
    counts.into_iter().map(line).collect()
}
