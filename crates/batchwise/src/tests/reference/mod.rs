//! Holds the documents and `packaging/` to the code. What stands between `<!-- generated: NAME -->` and
//! `<!-- end -->` in `docs/` and in CONTRIBUTING.md comes from the types of lines, the families of metrics, the
//! keys of the configuration and an example that is compiled; the text around it is written by hand.
//! With BLESS=1 the tests write it.

mod commands;
mod example;
mod features;
mod fields;
mod kernels;
mod links;
mod metrics;
mod packaging;

use std::fs;
use std::path::{Path, PathBuf};

use batchwise_core::{balance, passive, profile, sense, tune};
use schemars::{JsonSchema, generate::SchemaSettings};

use crate::balance::metrics::BalanceMetrics;
use crate::burst::BurstMetrics;
use crate::decap::DecapMetrics;
use crate::passive::metrics::PassiveMetrics;
use crate::profile::ProfileMetrics;
use crate::tune::metrics::TuneMetrics;
use crate::watch::metrics::WatchMetrics;
use crate::window::WindowMetrics;
use metrics::{Exported, exported as of};

const END: &str = "<!-- end -->";

/// The root of the repository.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("crates/batchwise is two levels deep")
        .to_owned()
}

/// A file of the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page with each generated section filled anew; panics where the page has others.
fn fill(page: &str, sections: &[(&str, String)]) -> String {
    let mut filled = String::new();
    let mut rest = page;
    for (name, table) in sections {
        let begin = format!("<!-- generated: {name} -->\n");
        let (before, after) = rest
            .split_once(&begin)
            .unwrap_or_else(|| panic!("{begin:?} is not in the page, or not in its place"));
        let (_, after) = after.split_once(END).expect("each section has its end");
        filled += &format!("{before}{begin}\n{table}\n{END}");
        rest = after;
    }
    let known = !rest.contains("<!-- generated");
    assert!(known, "a section that nobody generates");
    filled + rest
}

/// Compares the page's sections with what they should be, or writes them.
fn hold(page: &str, sections: &[(&str, String)]) {
    let text = read(page);
    let wanted = fill(&text, sections);
    if std::env::var_os("BLESS").is_some() {
        fs::write(root().join(page), wanted).expect("the page can be written");
    } else if text != wanted {
        let mut lines = text.lines().zip(wanted.lines());
        panic!(
            "{page} is not what the code says: run BLESS=1 cargo test -p batchwise --locked \
             --lib reference; what is, and what should be: {:#?}",
            lines.find(|(is, should)| is != should)
        );
    }
}

/// The table of all fields of a line.
fn lines<T: JsonSchema>() -> String {
    let settings = SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    fields::tables(schema.as_value())
}

#[test]
fn the_reference_of_json_is_what_the_types_say() {
    hold(
        "docs/reference/json.md",
        &[
            ("watch", lines::<sense::report::Line>()),
            ("tune", lines::<tune::report::Decision>()),
            ("passive", lines::<passive::report::Line>()),
            ("balance", lines::<balance::report::Line>()),
            ("agent", lines::<crate::balance::status::AgentLine>()),
            ("decap", lines::<crate::decap::Line>()),
            ("window", lines::<crate::window::Line>()),
            ("profile", lines::<profile::report::Line>()),
            ("change", lines::<crate::profile::Change>()),
            ("comparison", lines::<crate::profile::Comparison>()),
            ("burst", lines::<crate::burst::Line>()),
            ("doctor", lines::<crate::doctor::Report>()),
        ],
    );
}

/// What each agent exports besides the heartbeat.
fn exported() -> [(&'static str, Vec<Exported>); 8] {
    [
        ("watch", of::<WatchMetrics>()),
        ("tune", of::<TuneMetrics>()),
        ("passive", of::<PassiveMetrics>()),
        ("balance", of::<BalanceMetrics>()),
        ("decap", of::<DecapMetrics>()),
        ("window", of::<WindowMetrics>()),
        ("profile", of::<ProfileMetrics>()),
        ("burst", of::<BurstMetrics>()),
    ]
}

#[test]
fn the_reference_of_metrics_is_what_the_families_say() {
    let all = ("all", metrics::table(&metrics::of_all()));
    let agents = exported().map(|(agent, metrics)| (agent, metrics::table(&metrics)));
    let sections: Vec<_> = [all].into_iter().chain(agents).collect();
    hold("docs/reference/metrics.md", &sections);
}

#[test]
fn the_reference_of_the_configuration_is_what_its_rules_say() {
    hold(
        "docs/reference/configuration.md",
        &[("balance", crate::balance::config::keys::table())],
    );
}

#[test]
fn the_reference_subcommand_of_contributing_is_one_that_is_compiled() {
    let code = include_str!("example.rs");
    let begin = code.find("use std").expect("after the page's head");
    let end = code.find("#[test]").expect("before the tests");
    let code = format!("```rust\n{}\n```\n", code[begin..end].trim_end());
    hold("CONTRIBUTING.md", &[("subcommand", code)]);
}

#[test]
fn a_section_is_replaced_and_the_text_around_it_stays() {
    let page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
    let filled = fill(page, &[("x", "new\n".to_owned())]);
    assert_eq!(
        filled,
        "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n"
    );
    assert_eq!(fill(&filled, &[("x", "new\n".to_owned())]), filled);
}
