//! What stands on what: no file imports in a circle, in any crate, and the C of a folder includes nothing
//! that stands above it.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use imports::{Crate, Module, words};

/// Which of a folder's entries import which others, each with all that is below it, and one import for each.
type Siblings = BTreeMap<(String, String), (Module, Module)>;

#[test]
fn no_file_imports_in_a_circle_except_a_module_and_its_own_children() {
    let mut found = String::new();
    let roots = files(&repository().join("crates"), &["lib.rs", "main.rs"]);
    assert!(roots.len() > 20, "{roots:?}");
    for root in roots {
        for circle in circles(&Crate::read(&root)) {
            found += &format!("{}:\n{circle}", root.display());
        }
    }
    assert!(found.is_empty(), "files import in a circle:\n{found}");
}

#[test]
fn a_circle_is_found_through_other_names_and_whole_folders() {
    for (files, circle) in [
        // by a name that another file gives on
        (
            [
                ("", "mod a; mod b; pub use b::Two;"),
                ("a", "use crate::Two; pub struct One(Two);"),
                ("b", "pub struct Two; fn f() { crate::a::One(Two); }"),
            ],
            "a → b (a imports b)\nb → a (b imports a)\n",
        ),
        // files of two folders, none of which is in a circle itself
        (
            [
                ("a::x", "use super::super::b::y::Y;"),
                ("b::y", "pub struct Y;"),
                ("b::z", "use crate::{a::x, other};"),
            ],
            "a → b (a::x imports b::y)\nb → a (b::z imports a::x)\n",
        ),
        // a module and its own child, a comment, a text
        (
            [
                ("a", "mod x; use x::X; pub struct A<'a>(&'a X);"),
                ("a::x", "use super::A; pub struct X;"),
                (
                    "b",
                    "use crate::a::A; // crate::c\nconst C: &str = \"crate::b\";",
                ),
            ],
            "",
        ),
    ] {
        let mut of = Crate::default();
        for module in ["", "a", "b"] {
            of.add(path(module), "");
        }
        for (module, source) in files {
            of.add(path(module), source);
        }
        assert_eq!(circles(&of).concat(), circle, "{files:?}");
    }
}

#[test]
fn the_c_of_a_folder_includes_its_own_lib_and_flows_and_nothing_else() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for file in files(&sources, &[".h", ".c"]) {
        let text = fs::read_to_string(&file).expect("a source");
        let folder = |file: &Path| {
            file.strip_prefix(&sources)
                .expect("below")
                .iter()
                .next()
                .map(ToOwned::to_owned)
        };
        let own = folder(&file).expect("a folder");
        for line in text.lines() {
            let Some(included) = line
                .strip_prefix("#include \"")
                .and_then(|l| l.split('"').next())
            else {
                continue;
            };
            let beside = file.parent().expect("a folder").join(included);
            let there = beside
                .canonicalize()
                .unwrap_or_else(|e| panic!("{}: {e}", beside.display()));
            let there = folder(&there).expect("a folder");
            let below = there == "lib" || (there == "flows" && own != "lib");
            assert!(
                there == own || below,
                "{} includes {included}",
                file.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

/// `bw_` is what `lib/` has for all; what a system has for itself begins with the system's name.
#[test]
fn a_name_in_the_c_of_a_system_has_one_meaning() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let shared = |word: &&str| word.starts_with("bw_") || word.starts_with("BW_");
    let (mut known, mut used) = (BTreeSet::new(), BTreeMap::new());
    for file in files(&sources, &[".h", ".c"]) {
        let text = fs::read_to_string(&file).expect("a source");
        let names = words(&text).into_iter().filter(shared).map(str::to_owned);
        match file.starts_with(sources.join("lib")) {
            true => known.extend(names),
            false => used.extend(names.map(|name| (name, file.clone()))),
        }
    }
    used.retain(|name, _| !known.contains(name));
    assert!(used.is_empty(), "they are of no system: {used:?}");
}

fn path(module: &str) -> Module {
    let names = module.split("::").filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().expect("the repository")
}

/// All files below a folder whose names end so.
fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, ends));
        } else if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The imports of which circles are made, folder by folder, in words.
fn circles(of: &Crate) -> Vec<String> {
    let mut folders = BTreeMap::<Module, Siblings>::new();
    for (from, imported) in of.imports() {
        for to in imported {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // a module and its own children
            if common == from.len() || common == to.len() {
                continue;
            }
            let siblings = folders.entry(from[..common].to_vec()).or_default();
            let pair = (from[common].clone(), to[common].clone());
            siblings.entry(pair).or_insert_with(|| (from.clone(), to));
        }
    }
    let of_folder = |siblings: Siblings| {
        let left = without_ends(siblings).into_iter();
        let line = |((a, b), (from, to)): (_, (Module, Module))| {
            format!(
                "{a} → {b} ({} imports {})\n",
                from.join("::"),
                to.join("::")
            )
        };
        left.map(line).collect::<String>()
    };
    let all = folders.into_values().map(of_folder);
    all.filter(|lines| !lines.is_empty()).collect()
}

/// What is left when imports are taken out, again and again, of entries that import nothing, or that nothing
/// imports.
fn without_ends(mut siblings: Siblings) -> Siblings {
    loop {
        let before = siblings.len();
        let from: BTreeSet<_> = siblings.keys().map(|(from, _)| from.clone()).collect();
        let to: BTreeSet<_> = siblings.keys().map(|(_, to)| to.clone()).collect();
        siblings.retain(|(a, b), _| from.contains(b) && to.contains(a));
        if siblings.len() == before {
            return siblings;
        }
    }
}
