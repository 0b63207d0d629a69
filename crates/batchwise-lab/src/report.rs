//! `report.html`: one file with everything in it, readable on its own.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::machine::Machine;
use crate::stats::{MedianInterval, Spread};

pub(crate) const STYLE: &str = "
body { font: 17px/1.55 Georgia, 'Liberation Serif', serif; color: #1d1d1f; background: #fff;
  max-width: 960px; margin: 2.5em auto; padding: 0 1.2em; }
h1 { font-size: 1.75em; line-height: 1.2; margin-bottom: .2em; }
h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #ddd; padding-bottom: .2em; }
h3 { font-size: 1.05em; margin-top: 1.6em; }
table { border-collapse: collapse; font: 14px/1.4 'Helvetica Neue', 'Liberation Sans', sans-serif;
  margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3em .75em; border-bottom: 1px solid #e4e4e4; text-align: right; }
th { font-weight: 600; background: #f6f6f7; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
table.facts td { text-align: left; }
svg { max-width: 100%; height: auto; display: block; margin: 1em 0; }
code, pre { font: 14px/1.5 'DejaVu Sans Mono', monospace; background: #f6f6f7; }
pre { padding: .8em 1em; overflow-x: auto; } code { padding: .1em .3em; }
.lead { color: #555; margin-top: 0; }
.warn { background: #fff4e0; border-left: 4px solid #e2a84c; padding: .6em 1em; }
.scroll { overflow-x: auto; }
";

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

/// A share as a percentage, or a dash.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:.1} %", s * 100.0))
}

/// A ratio, or a dash.
pub fn ratio(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value.is_infinite() => "∞".into(),
        Some(value) => format!("{value:.2}"),
    }
}

/// A median and its interval, or a dash.
pub fn interval(value: Option<MedianInterval>) -> String {
    value.map_or_else(
        || "–".into(),
        |v| format!("{:.3} ({:.3} – {:.3})", v.median, v.low, v.high),
    )
}

/// A median and its quartiles, without decimals.
pub fn quartiles(of: Spread) -> String {
    format!("{:.0} ({:.0} – {:.0})", of.median, of.q1, of.q3)
}

/// What is to be said of a point: that it is saturated, or else why its load is not trusted.
pub fn remark(saturated: bool, valid: bool, why_invalid: &[String]) -> String {
    match (saturated, valid) {
        (true, _) => "saturated".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!("generator: {}", why_invalid.join(", ")),
    }
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

    #[test]
    fn an_unknown_share_is_a_dash_and_not_zero() {
        assert_eq!(percent(None), "–");
        assert_eq!(percent(Some(0.034)), "3.4 %");
    }
}
