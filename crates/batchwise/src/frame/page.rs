//! Pages that are readable on their own, for a browser.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A flame graph's script takes `width` and `viewBox` away, and draws as wide as it finds it.
const STYLE: &str = "
body { font: 17px/1.55 Georgia, 'Liberation Serif', serif; color: #1d1d1f; background: #fff;
  max-width: 960px; margin: 2.5em auto; padding: 0 1.2em; }
h1 { font-size: 1.75em; line-height: 1.2; margin-bottom: .2em; }
h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #ddd; padding-bottom: .2em; }
h3 { font: 600 15px/1.4 'Helvetica Neue', 'Liberation Sans', sans-serif; margin: 1.6em 0 0; }
table { border-collapse: collapse; font: 14px/1.4 'Helvetica Neue', 'Liberation Sans', sans-serif;
  margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3em .75em; border-bottom: 1px solid #e4e4e4; text-align: right; }
td { white-space: nowrap; } table.facts td { white-space: normal; }
th { font-weight: 600; background: #f6f6f7; vertical-align: bottom; }
th:first-child, td:first-child, table.facts td { text-align: left; }
svg[viewBox] { max-width: 100%; height: auto; } svg { display: block; margin: .6em 0; }
.flames > svg { width: 100%; }
.lead { color: #555; margin-top: 0; } .note { color: #555; font-size: .9em; margin: .2em 0; }
.warn { background: #fff4e0; border-left: 4px solid #e2a84c; padding: .6em 1em; }
.scroll { overflow-x: auto; }
";

/// A whole page.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}
