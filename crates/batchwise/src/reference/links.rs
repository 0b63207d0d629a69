//! Every relative link of the documents leads somewhere, and so does every document that the code names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// All files below `directory` with one of these endings.
pub fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let mut found = Vec::new();
    for path in entries.filter(|path| !path.ends_with("target")) {
        if path.is_dir() {
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
    let root = root();
    let mut pages = files(&root.join("docs"), &["md"]);
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|page| root.join(page)));
    pages
}

/// The lines of a page that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The names of a page's headings, as links have them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let name = title
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-");
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

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    for page in &pages() {
        let text = fs::read_to_string(page).expect("a page");
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("a directory").join(file),
            };
            let leads = match anchor {
                "" => target.exists(),
                anchor => fs::read_to_string(&target).is_ok_and(|t| anchors(&t).contains(anchor)),
            };
            if !leads {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn every_file_that_the_documents_name_exists() {
    let root = root();
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let spans = text.split('`').filter(|span| {
            ["crates/", "packaging/", "docs/"]
                .iter()
                .any(|top| span.starts_with(top))
        });
        // NAME stands for a file of the reader's own
        for span in spans.filter(|span| !span.contains(['\n', ' ', '*']) && !span.contains("NAME"))
        {
            if !root.join(span).exists() {
                dead.push(format!("{}: {span}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "no such files:\n{}", dead.join("\n"));
}

#[test]
fn every_document_that_the_code_names_exists() {
    let root = root();
    let mut sources = files(&root.join("crates"), &["rs", "h", "c", "toml"]);
    sources.extend(files(&root.join("packaging"), &["toml", "service", "yml"]));
    sources.push(root.join("Makefile"));
    let mut dead = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(source).expect("a source");
        let names = text.split("docs/").skip(1).filter_map(|rest| {
            let end = rest.find(".md")?;
            let fits = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
            rest[..end].chars().all(fits).then(|| &rest[..end + 3])
        });
        for name in names.filter(|name| !root.join("docs").join(name).exists()) {
            dead.push(format!("{}: docs/{name}", source.display()));
        }
    }
    assert!(dead.is_empty(), "no such document:\n{}", dead.join("\n"));
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
