//! Every relative link of the documents leads somewhere, and so does every document that the code names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{read, root};

/// All files below `directory` with one of these endings.
pub fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, endings));
        } else if endings
            .iter()
            .any(|e| path.extension().is_some_and(|x| x == *e))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// All documents.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = files(&root().join("docs"), &["md"]);
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|page| root().join(page)));
    pages
}

/// The lines of a page that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(str::lines)
}

/// The names of a page's headings, as links have them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name = kept.collect::<String>().replace(' ', "-");
        let before = seen.entry(name.clone()).or_default();
        *before += 1;
        match *before {
            1 => name,
            again => format!("{name}-{}", again - 1),
        }
    };
    headings.map(anchor).collect()
}

/// Where a page's links lead that stay in the repository.
fn links(text: &str) -> Vec<&str> {
    let of_line = |line| {
        let ends = str::split(line, "](").skip(1);
        ends.filter_map(|rest: &str| rest.split_once(')').map(|(link, _)| link))
    };
    let all = prose(text).flat_map(of_line);
    all.filter(|link| !link.contains("://")).collect()
}

/// Panics where a file names another that is not there.
fn assert_none_dead(dead: &[(&PathBuf, String)]) {
    let lines: Vec<_> = dead
        .iter()
        .map(|(file, name)| format!("{}: {name}", file.display()))
        .collect();
    assert!(dead.is_empty(), "not there:\n{}", lines.join("\n"));
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut dead = Vec::new();
    for page in &pages {
        for link in links(&read(page)) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.with_file_name(file),
            };
            let leads = match anchor {
                "" => target.exists(),
                anchor => fs::read_to_string(&target).is_ok_and(|t| anchors(&t).contains(anchor)),
            };
            if !leads {
                dead.push((page, link.to_owned()));
            }
        }
    }
    assert_none_dead(&dead);
}

#[test]
fn every_file_that_the_documents_name_exists() {
    let pages = pages();
    let mut dead = Vec::new();
    for page in &pages {
        let text = read(page);
        let of_ours = |span: &&str| {
            ["crates/", "packaging/", "docs/"]
                .iter()
                .any(|top| span.starts_with(top))
        };
        // NAME stands for a file of the reader's own
        let is_path = |span: &&str| !span.contains(['\n', ' ', '*']) && !span.contains("NAME");
        let spans = text.split('`').filter(of_ours).filter(is_path);
        dead.extend(
            spans
                .filter(|span| !root().join(span).exists())
                .map(|span| (page, span.to_owned())),
        );
    }
    assert_none_dead(&dead);
}

#[test]
fn every_document_that_the_code_names_exists() {
    let mut sources = files(&root().join("crates"), &["rs", "h", "c", "toml"]);
    sources.extend(files(
        &root().join("packaging"),
        &["toml", "service", "yml"],
    ));
    sources.push(root().join("Makefile"));
    let mut dead = Vec::new();
    for source in &sources {
        for rest in read(source).split("docs/").skip(1) {
            let fits = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
            if let Some((name, _)) = rest.split_once(".md")
                && name.chars().all(fits)
                && !root().join(format!("docs/{name}.md")).exists()
            {
                dead.push((source, format!("docs/{name}.md")));
            }
        }
    }
    assert_none_dead(&dead);
}

#[test]
fn headings_are_named_as_links_name_them() {
    let page = "# A, `b` and c's\n```\n# no heading\n```\n## What it costs\n## What it costs\n";
    let names = ["a-b-and-cs", "what-it-costs", "what-it-costs-1"];
    assert_eq!(anchors(page), names.map(str::to_owned).into());
    assert_eq!(
        links("[a](b.md#c) and [d](https://e) [f](#g)"),
        ["b.md#c", "#g"]
    );
}
