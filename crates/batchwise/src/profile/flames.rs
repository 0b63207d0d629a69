//! The flame graph, coloured by component. What is too narrow to be seen is not drawn: its time is its caller's.

use anyhow::Context;
use batchwise_core::profile::Component;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options};

use super::folded::part;
use super::frames::{Function, Graph, Named};

/// What works for whoever calls it.
const GREY: [u8; 3] = [215, 215, 215];
/// A function that is narrower is a fraction of a pixel wide.
const NARROWEST: u64 = 2_000;
/// Functions that are drawn, at most …
const MOST: usize = 10_000;
/// … and bytes of the lines that they are drawn from.
const MOST_BYTES: usize = 4 << 20;

/// The stacks that are drawn.
struct Lines<'a> {
    graph: &'a Graph,
    /// Samples of a function that is drawn, at least.
    least: u64,
    lines: Vec<String>,
    functions: usize,
    bytes: usize,
}

impl<'a> Lines<'a> {
    /// As much as there is room for.
    fn of(graph: &'a Graph) -> Self {
        let all: u64 = graph.stacks.iter().map(|stack| stack.count).sum();
        let mut least = all / NARROWEST;
        loop {
            let mut lines = Self {
                graph,
                least,
                lines: Vec::new(),
                functions: 0,
                bytes: 0,
            };
            for stacks in graph.stacks.chunk_by(|a, b| a.process == b.process) {
                let process = &graph.processes[stacks[0].process as usize];
                lines.add(stacks, 0, &part(process));
            }
            if lines.has_room() || least > all {
                return lines;
            }
            least = (2 * least).max(1);
        }
    }

    fn has_room(&self) -> bool {
        self.functions <= MOST && self.bytes <= MOST_BYTES
    }

    /// Stacks that are the same down to `depth`.
    fn add(&mut self, stacks: &[Named], depth: usize, above: &str) {
        let mut own = 0;
        for stacks in stacks.chunk_by(|a, b| a.frames.get(depth) == b.frames.get(depth)) {
            let count: u64 = stacks.iter().map(|stack| stack.count).sum();
            match stacks[0].frames.get(depth) {
                Some(frame) if count >= self.least && self.has_room() => {
                    self.functions += 1;
                    let function = part(&self.graph.functions[*frame as usize].name);
                    self.add(stacks, depth + 1, &format!("{above};{function}"));
                }
                _ => own += count,
            }
        }
        if own > 0 {
            let line = format!("{above} {own}");
            self.bytes += line.len();
            self.lines.push(line);
        }
    }
}

/// Draws it; as text of SVG. `None`: there is nothing to draw.
pub fn draw(graph: &Graph) -> anyhow::Result<Option<Vec<u8>>> {
    let lines = Lines::of(graph).lines;
    if lines.is_empty() {
        return Ok(None);
    }
    let mut palette = palette(graph);
    let mut options = Options::default();
    options.title = String::new();
    options.palette_map = Some(&mut palette);
    options.count_name = "samples".to_owned();
    options.bgcolors = Some(BackgroundColor::Flat(Color::from((255, 255, 255))));
    let mut svg = Vec::new();
    let drawing = "drawing the flame graph";
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .context(drawing)?;
    // in a page there is no XML declaration
    let is_begin = |bytes: &[u8]| bytes == b"<svg";
    let begin = svg.windows(4).position(is_begin).context(drawing)?;
    svg.drain(..begin);
    Ok(Some(svg))
}

fn palette(graph: &Graph) -> PaletteMap {
    let mut palette = PaletteMap::default();
    let mut paint = |name: &str, colour: [u8; 3]| {
        palette.insert(part(name), Color::from(colour));
    };
    // the root has no name
    paint("", GREY);
    graph.processes.iter().for_each(|name| paint(name, GREY));
    let is_masked = |function: &&Function| function.component == Some(Component::Masked);
    let masked = graph.functions.iter().filter(is_masked);
    let others = graph
        .functions
        .iter()
        .filter(|function| !is_masked(function));
    // a function that also calls others keeps its own colour
    for Function { name, component } in masked.chain(others) {
        paint(name, component.map_or(GREY, Component::colour));
    }
    palette
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(functions: &[(&str, Component)], stacks: &[(&[u32], u64)]) -> Graph {
        let function = |(name, component): &(&str, Component)| Function {
            name: (*name).to_owned(),
            component: Some(*component),
        };
        let named = |(frames, count): &(&[u32], u64)| Named {
            process: 0,
            frames: (*frames).into(),
            count: *count,
        };
        Graph {
            functions: functions.iter().map(function).collect(),
            processes: vec!["a->b c".to_owned()],
            stacks: stacks.iter().map(named).collect(),
        }
    }

    fn colour(svg: &str, title: &str) -> String {
        let (_, after) = svg.split_once(title).expect(title);
        let (_, fill) = after.split_once("fill=\"").expect("a colour");
        fill.split('"').next().expect("its end").to_owned()
    }

    fn rgb(component: Component) -> String {
        let [red, green, blue] = component.colour();
        format!("rgb({red},{green},{blue})")
    }

    #[test]
    fn each_name_has_its_components_colour_whatever_is_in_it() {
        let functions = [
            ("ptr::operator->()", Component::Application),
            ("_raw_spin_unlock_irqrestore_[k]", Component::Masked),
            ("interrupts off", Component::Masked),
        ];
        let graph = graph(&functions, &[(&[0, 1, 2], 3)]);
        let svg = draw(&graph).expect("it is drawn").expect("something");
        let svg = String::from_utf8(svg).expect("text");
        let (application, masked) = (rgb(Component::Application), rgb(Component::Masked));
        assert_eq!(colour(&svg, "ptr::operator-&gt;() ("), application);
        assert_eq!(colour(&svg, "_raw_spin_unlock_irqrestore ("), masked);
        assert_eq!(colour(&svg, "interrupts off ("), masked);
        assert_eq!(colour(&svg, "a-&gt;b c ("), "rgb(215,215,215)");
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_is_its_callers() {
        let functions = [("wide", Component::Copy), ("narrow", Component::Copy)];
        let graph = graph(&functions, &[(&[0], 9_999), (&[0, 1], 1)]);
        let lines = Lines::of(&graph).lines;
        assert_eq!(lines, ["a->b c;wide 10000"]);
    }
}
