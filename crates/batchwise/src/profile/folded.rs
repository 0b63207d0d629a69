//! Folded stacks: a line each, functions from the outermost to the innermost, and how often it was sampled. What
//! flame graph tools take.

use std::io::{self, Write};

use super::frames::{Graph, Named};

/// Writes all lines.
pub fn write(graph: &Graph, mut out: impl Write) -> io::Result<()> {
    let same = |a: &Named, b: &Named| a.process == b.process && a.frames == b.frames;
    for stacks in graph.stacks.chunk_by(same) {
        let mut line = part(&graph.processes[stacks[0].process as usize]);
        for frame in &stacks[0].frames {
            line.push(';');
            line += &part(&graph.functions[*frame as usize].name);
        }
        let count: u64 = stacks.iter().map(|stack| stack.count).sum();
        writeln!(out, "{line} {count}")?;
    }
    Ok(())
}

/// A semicolon in a name would be a function more.
pub fn part(name: &str) -> String {
    name.replace(';', ":")
}
