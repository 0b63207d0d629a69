//! Folded stacks: a line each, functions from the outermost to the innermost, and how often it was sampled. What
//! flame graph tools take.

use std::io::{self, Write};

use super::frames::Graph;

/// Writes all lines.
pub fn write(graph: &Graph, mut out: impl Write) -> io::Result<()> {
    for stack in &graph.stacks {
        let mut line = part(&graph.processes[stack.process as usize]);
        for frame in &stack.frames {
            line.push(';');
            line += &part(&graph.functions[*frame as usize].name);
        }
        writeln!(out, "{line} {}", stack.count)?;
    }
    Ok(())
}

/// A semicolon in a name would be a function more.
pub fn part(name: &str) -> String {
    name.replace(';', ":")
}
