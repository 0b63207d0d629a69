//! What `make test-kernels` has seen, in `kernels/measured/`: the tables of the page, and the verifier's
//! margin.

use std::collections::{BTreeMap, BTreeSet};

use batchwise_bpf::features::LIMIT;
use serde::Deserialize;

use super::{hold, read};

/// One kernel.
#[derive(Deserialize)]
struct Measured {
    kernel: String,
    release: String,
    tried: Vec<Tried>,
    /// By subcommand.
    doctor: BTreeMap<String, Doctor>,
    /// Instructions by program; none: the kernel does not say.
    programs: BTreeMap<String, Option<u32>>,
}

#[derive(Deserialize)]
struct Tried {
    row: String,
    result: String,
}

#[derive(Deserialize)]
struct Doctor {
    lacks: Vec<String>,
}

/// The lines of the list: a kernel's name, archive, suite and package.
fn list() -> Vec<[String; 4]> {
    let list = read("kernels/list");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let fields = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().map(String::from).collect();
        fields.try_into().expect("four fields")
    };
    lines.map(fields).collect()
}

impl Measured {
    /// The kernels of the list, in its order; `KERNELS=NAME BLESS=1 make test-kernels` measures one.
    fn all() -> Vec<Self> {
        let measured = |[name, ..]: &[String; 4]| read(format!("kernels/measured/{name}.json"));
        let parse = |text: String| serde_json::from_str(&text).expect("as kernels/guest writes it");
        list().iter().map(measured).map(parse).collect()
    }

    /// How it went with a row of the table.
    fn cell(&self, row: &str) -> String {
        let tried = self.tried.iter().filter(|t| t.row == row);
        let results: BTreeSet<&str> = tried.map(|t| t.result.as_str()).collect();
        match results.into_iter().collect::<Vec<_>>().as_slice() {
            ["ok"] => "works".to_owned(),
            ["refused"] => "refused".to_owned(),
            [] => NOT_TRIED.to_owned(),
            _ => "**fails**".to_owned(),
        }
    }
}

/// A row that is newer than what was measured of a kernel.
const NOT_TRIED: &str = "not tried";

/// Where each kernel is from.
fn packages() -> String {
    let row_of = |[name, archive, suite, package]: [String; 4]| {
        format!("| {name} | {archive}, `{suite}` | `{package}` |\n")
    };
    "| kernel | archive | package |\n|---|---|---|\n".to_owned()
        + &list().into_iter().map(row_of).collect::<String>()
}

fn head(first: &str, kernels: &[Measured]) -> String {
    let names: Vec<_> = kernels.iter().map(|k| k.kernel.as_str()).collect();
    let rule = "---|".repeat(kernels.len() + 1);
    format!("| {first} | {} |\n|{rule}\n", names.join(" | "))
}

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    format!("| {first} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// A row for each name, with a cell for each kernel.
fn rows<'a>(
    names: impl IntoIterator<Item = &'a String>,
    kernels: &[Measured],
    cell: impl Fn(&Measured, &str) -> String,
) -> String {
    let row_of = |name: &String| row(&format!("`{name}`"), kernels.iter().map(|k| cell(k, name)));
    names.into_iter().map(row_of).collect()
}

/// Subcommands by kernel.
fn subcommands(kernels: &[Measured]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for tried in kernels.iter().flat_map(|k| &k.tried) {
        if !names.contains(&&tried.row) {
            names.push(&tried.row);
        }
    }
    head("", kernels)
        + &row("release", kernels.iter().map(|k| k.release.clone()))
        + &rows(names, kernels, Measured::cell)
}

/// What is missing or degraded, by subcommand and kernel.
fn lacks(kernels: &[Measured]) -> String {
    let names: BTreeSet<_> = kernels.iter().flat_map(|k| k.doctor.keys()).collect();
    let cell = |kernel: &Measured, name: &str| {
        let said = kernel.doctor.get(name);
        said.map_or_else(|| NOT_TRIED.to_owned(), |d| d.lacks.join(", "))
    };
    head("", kernels) + &rows(names, kernels, cell)
}

/// Programs by kernel.
fn programs(kernels: &[Measured]) -> String {
    let names: BTreeSet<_> = kernels.iter().flat_map(|k| k.programs.keys()).collect();
    let cell = |kernel: &Measured, name: &str| match kernel.programs.get(name) {
        Some(Some(instructions)) => instructions.to_string(),
        Some(None) => "loaded".to_owned(),
        None => String::new(),
    };
    head("program", kernels) + &rows(names, kernels, cell)
}

#[test]
fn the_reference_of_kernels_is_what_was_measured() {
    let kernels = Measured::all();
    let sections = [
        ("packages", packages()),
        ("subcommands", subcommands(&kernels)),
        ("lacks", lacks(&kernels)),
        ("programs", programs(&kernels)),
    ];
    hold("docs/reference/kernels.md", &sections);
}

#[test]
fn no_program_needs_more_than_half_of_what_the_verifier_looks_at() {
    for measured in Measured::all() {
        for (name, instructions) in &measured.programs {
            let count = instructions.unwrap_or(0);
            let kernel = &measured.kernel;
            assert!(count <= LIMIT / 2, "{name} on {kernel}: {count} of {LIMIT}");
        }
    }
}
