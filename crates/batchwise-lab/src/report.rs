//! `report.html`: one file with everything in it, readable on its own.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::engine::page::STYLE;
pub use crate::engine::text::{percent, quartiles, ratio, remark};
use crate::machine::Machine;
use crate::stats::MedianInterval;

/// A table: a header and rows, the first column being what a row is about.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column names.
    pub header: Vec<&'static str>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// With these columns and no rows.
    pub fn new<const N: usize>(header: [&'static str; N]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// As HTML.
    pub fn html(&self) -> Markup {
        html! {
            div class="scroll" { table {
                tr { @for name in &self.header { th { (name) } } }
                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
            } }
        }
    }
}

/// What every report says besides its body.
#[derive(Debug)]
pub struct Page<'a> {
    /// Its title.
    pub title: &'a str,
    /// One sentence below it.
    pub lead: &'a str,
    /// Where it was measured.
    pub machine: &'a Machine,
    /// More facts for that table.
    pub facts: Vec<(&'static str, String)>,
    /// Whether everything that was planned was measured.
    pub complete: bool,
    /// The command line that repeats it.
    pub reproduce: &'a str,
}

impl Page<'_> {
    /// The whole page.
    pub fn html(&self, body: &Markup) -> String {
        let machine = self.machine;
        let facts = [
            ("Date", machine.date.clone()),
            ("Kernel", machine.kernel.clone()),
            ("CPU", format!("{} × {}", machine.cpus, machine.cpu)),
            ("Load average at the start", machine.load_average.clone()),
            ("BPF JIT", machine.bpf_jit.clone()),
            ("batchwise", machine.batchwise.clone()),
        ];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    p class="lead" { (self.lead) }
                    @if !self.complete {
                        p class="warn" {
                            "This run is not complete: it is under way, or was stopped before its \
                             end. What is shown is what was measured until then."
                        }
                    }
                    (body)
                    h2 { "Machine" }
                    table class="facts" {
                        @for (name, value) in facts.iter().chain(&self.facts) {
                            tr { td { (name) } td { (value) } }
                        }
                    }
                    h2 { "How to repeat it" }
                    pre { (self.reproduce) }
                    p { "All numbers are in " code { "result.json" } " next to this file." }
                }
            }
        };
        page.into_string()
    }
}

/// SVG text that this crate drew, to stand inside a page.
pub fn figure(svg: &str) -> Markup {
    html! { (PreEscaped(svg)) }
}

/// A median and its interval, or a dash.
pub fn interval(value: Option<MedianInterval>) -> String {
    value.map_or_else(
        || "–".into(),
        |v| format!("{:.3} ({:.3} – {:.3})", v.median, v.low, v.high),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped() {
        let mut table = Table::new(["a", "b"]);
        table.row(["<script>".into(), "1 & 2".into()]);
        let html = table.html().into_string();
        assert!(html.contains("&lt;script&gt;") && html.contains("1 &amp; 2"));
    }
}
