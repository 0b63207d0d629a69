//! `report.html`: one file with everything in it, readable on its own, and its figures as files.

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::draw;
use super::record::{Progressed, Record, facts};
use super::report::{Part, Report, Table};
use crate::Context;

const STYLE: &str = "
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

/// Draws the figures and writes the page.
pub(super) fn write<P, M>(
    name: &str,
    context: &Context,
    record: &Record<P, M>,
    report: &Report,
) -> Result<()> {
    let output = &context.output;
    for (name, content) in &report.files {
        output.write(name, content)?;
    }
    let mut body = Vec::new();
    for part in &report.parts {
        body.push(html_of(part, context)?);
    }
    let about = facts(&record.machine)
        .into_iter()
        .chain(facts(&record.network));
    let Progressed {
        missing, repeated, ..
    } = &record.progressed;
    let refused = [
        ("Missing: invalid in every attempt", missing),
        ("Repeated, because it was invalid", repeated),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (report.title) }
                p class="lead" { (inline(&report.lead)) }
                @if !record.complete {
                    p class="warn" {
                        "This run is not complete: it is under way, or was stopped before its end. \
                         What is shown is what was measured until then."
                    }
                }
                @for part in &body { (part) }
                @if refused.iter().any(|(_, list)| !list.is_empty()) {
                    h2 { "What does not count" }
                }
                @for (title, list) in refused.iter().filter(|(_, list)| !list.is_empty()) {
                    details {
                        summary { (title) " (" (list.len()) ")" }
                        ul { @for one in *list { li { (one.what) ": " (one.why) } } }
                    }
                }
                h2 { "Machine" }
                table class="facts" {
                    @for (name, value) in about { tr { td { (name) } td { (value) } } }
                }
                h2 { "How to repeat it" }
                pre { (context.reproduce(name)) }
                p { "All numbers are in " code { "result.json" } " next to this file." }
            }
        }
    };
    output.write("report.html", &page.into_string())
}

fn html_of(part: &Part, context: &Context) -> Result<Markup> {
    Ok(match part {
        Part::Heading(text) => html! { h2 { (inline(text)) } },
        Part::Subheading(text) => html! { h3 { (inline(text)) } },
        Part::Text(text) => html! { p { (inline(text)) } },
        Part::Warning(text) => html! { p class="warn" { (inline(text)) } },
        Part::List(items) => html! { ul { @for item in items { li { (inline(item)) } } } },
        Part::Table(table) => table_html(table),
        Part::Figure(figure) => {
            let svg = draw::svg(figure)?;
            context.output.write(&figure.file, &svg)?;
            html! { (PreEscaped(svg)) }
        }
        Part::Details(title, parts) => {
            let parts = parts.iter().map(|part| html_of(part, context));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            html! { details { summary { (title) } @for part in &parts { (part) } } }
        }
    })
}

fn table_html(table: &Table) -> Markup {
    html! {
        div class="scroll" { table {
            tr { @for name in &table.header { th { (name) } } }
            @for row in &table.rows { tr { @for cell in row { td { (cell) } } } }
        } }
    }
}

/// Text with `code` and **strong** parts.
fn inline(text: &str) -> Markup {
    html! {
        @for (i, piece) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (piece) } } @else {
                @for (i, piece) in piece.split("**").enumerate() {
                    @if i % 2 == 1 { strong { (piece) } } @else { (piece) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_marked_up() {
        let html = inline("a < b, `x & y` is **strong**").into_string();
        assert_eq!(
            html,
            "a &lt; b, <code>x &amp; y</code> is <strong>strong</strong>"
        );
    }

    #[test]
    fn cells_are_escaped() {
        let table = Table::new(["a", "b"]).with([vec!["<script>".into(), "1 & 2".into()]]);
        let html = table_html(&table).into_string();
        assert!(html.contains("&lt;script&gt;") && html.contains("1 &amp; 2"));
    }
}
