//! Which files of a crate import which others: the modules' tree, and what each path in it leads to. Tests at a
//! file's end are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module, by its path from the crate's root.
pub type Module = Vec<String>;

/// A crate's files, and what is in them.
#[derive(Default)]
pub struct Crate {
    files: BTreeMap<Module, File>,
}

/// What a file says.
#[derive(Default)]
struct File {
    /// Every path that begins at a name that is known, and the modules of this file that it is in.
    paths: Vec<(Module, Module)>,
    /// What names stand for.
    names: BTreeMap<String, Module>,
    /// What is taken over whole, by a `*`.
    globs: Vec<Module>,
    /// What it defines itself.
    items: BTreeSet<String>,
}

impl Crate {
    /// Of the root's file, `lib.rs` or `main.rs`.
    pub fn read(root: &Path) -> Self {
        let mut all = Self::default();
        let folder = root.parent().expect("a file is in a folder");
        all.read_module(Vec::new(), root, folder);
        all
    }

    fn read_module(&mut self, module: Module, file: &Path, folder: &Path) {
        let source = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for child in self.add(module.clone(), &source) {
            let (flat, deep) = (format!("{child}.rs"), format!("{child}/mod.rs"));
            let file = [flat, deep].map(|name| folder.join(name));
            // what a macro in a text declares is no file
            if let Some(file) = file.iter().find(|file| file.exists()) {
                let below = folder.join(&child);
                self.read_module([&module[..], &[child]].concat(), file, &below);
            }
        }
    }

    /// Takes a file in; gives the modules that it declares.
    pub fn add(&mut self, module: Module, source: &str) -> Vec<String> {
        let (file, declared) = File::parse(&words(source));
        self.files.insert(module, file);
        declared
    }

    /// Which file imports which others.
    pub fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of = |(module, file): (&Module, &File)| {
            let paths = file.paths.iter();
            let found = paths.filter_map(|(inline, path)| {
                let start = [&module[..], inline].concat();
                self.find(&start, path, 0)
            });
            (module.clone(), found.filter(|to| to != module).collect())
        };
        self.files.iter().map(of).collect()
    }

    /// The file that defines what a path in `module` leads to; `None`: it is another crate's.
    fn find(&self, module: &[String], path: &[String], depth: u32) -> Option<Module> {
        let first = path.first()?.as_str();
        let (mut at, mut rest) = match first {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let left = module.len().checked_sub(ups)?;
                (module[..left].to_vec(), &path[ups..])
            }
            _ => (module.to_vec(), path),
        };
        let from_here = !["crate", "self", "super"].contains(&first);
        while let [name, others @ ..] = rest {
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child, others);
        }
        // a module within a file
        while !self.files.contains_key(&at) {
            at.pop();
        }
        let (file, Some(name)) = (&self.files[&at], rest.first()) else {
            return Some(at);
        };
        if depth > 8 || file.items.contains(name) {
            return Some(at);
        }
        if let Some(other) = file.names.get(name) {
            let other = [&other[..], &rest[1..]].concat();
            return match other == path {
                true => None, // a crate of this name
                false => self.find(&at, &other, depth + 1),
            };
        }
        let mut globs = file.globs.iter().filter_map(|glob| {
            let other = [&glob[..], rest].concat();
            let found = self.find(&at, &other, depth + 1)?;
            self.files[&found].items.contains(name).then_some(found)
        });
        match globs.next() {
            Some(found) => Some(found),
            None => (!from_here).then_some(at),
        }
    }
}

impl File {
    fn parse(words: &[&str]) -> (Self, Vec<String>) {
        let (mut file, mut declared) = (Self::default(), Vec::new());
        let (mut depth, mut inline) = (0, Vec::<(String, u32)>::new());
        let mut at = 0;
        while at < words.len() {
            let within: Module = inline.iter().map(|(name, _)| name.clone()).collect();
            match &words[at..] {
                ["{", ..] => depth += 1,
                ["}", ..] => {
                    depth -= 1;
                    inline.retain(|(_, opened)| *opened <= depth);
                }
                ["mod", name, ";", ..] => declared.push((*name).to_owned()),
                // a file's own tests may use what stands above it
                ["mod", "tests", "{", ..] => at += 1 + block(&words[at + 2..]),
                ["mod", name, "{", ..] => inline.push(((*name).to_owned(), depth + 1)),
                ["use", first, ..] if *first != "<" => {
                    let length = words[at..].iter().position(|word| *word == ";");
                    let length = length.unwrap_or(1);
                    file.take_tree(&words[at + 1..at + length], &within);
                    at += length;
                }
                ["macro_rules", "!", name, ..] => {
                    file.items.insert((*name).to_owned());
                }
                [kind, name, ..] if ITEMS.contains(kind) => {
                    file.items.insert((*name).to_owned());
                }
                [first, ":", ":", ..] if is_name(first) => {
                    let path = path_at(&words[at..]);
                    at += 3 * path.len() - 3;
                    file.paths.push((within, path));
                }
                _ => {}
            }
            at += 1;
        }
        (file, declared)
    }

    /// The paths of a `use`, which may have braces.
    fn take_tree(&mut self, tree: &[&str], within: &Module) {
        for (path, name) in branches(tree) {
            if path.last().is_some_and(|last| last == "*") {
                let glob = path[..path.len() - 1].to_vec();
                self.paths.push((within.clone(), glob.clone()));
                self.globs.push(glob);
                continue;
            }
            self.paths.push((within.clone(), path.clone()));
            if within.is_empty() {
                self.names.insert(name, path);
            }
        }
    }
}

const ITEMS: [&str; 8] = [
    "struct", "enum", "fn", "const", "static", "trait", "type", "union",
];

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A path without braces, at its first name.
fn path_at(words: &[&str]) -> Module {
    let mut path = vec![words[0].to_owned()];
    let mut rest = &words[1..];
    while let [":", ":", name, others @ ..] = rest
        && is_name(name)
    {
        path.push((*name).to_owned());
        rest = others;
    }
    path
}

/// Each path of a `use`, and the name that it has here.
fn branches(tree: &[&str]) -> Vec<(Module, String)> {
    let mut head = Module::new();
    let mut at = 0;
    while at < tree.len() && tree[at] != "{" && tree[at] != "as" {
        if tree[at] != ":" && tree[at] != "$" {
            head.push(tree[at].to_owned());
        }
        at += 1;
    }
    match tree.get(at) {
        Some(&"{") => {
            let parts = parts(&tree[at + 1..tree.len() - 1]);
            let below = parts.into_iter().flat_map(branches);
            let whole = |(path, name): (Module, String)| match path == ["self"] {
                true => (head.clone(), head.last().cloned().unwrap_or_default()),
                false => ([&head[..], &path].concat(), name),
            };
            below.map(whole).collect()
        }
        Some(_) => vec![(head, tree[at + 1].to_owned())],
        None => {
            let name = head.last().cloned().unwrap_or_default();
            vec![(head, name)]
        }
    }
}

/// How many words a block has, from its brace to the one that closes it.
fn block(words: &[&str]) -> usize {
    let mut depth = 0;
    let end = words.iter().position(|word| {
        depth += i32::from(*word == "{") - i32::from(*word == "}");
        depth == 0
    });
    end.map_or(words.len(), |end| end + 1)
}

/// What commas part, outside of braces.
fn parts<'a>(words: &'a [&'a str]) -> Vec<&'a [&'a str]> {
    let mut depth = 0;
    let all = words.split(|word| {
        depth += i32::from(*word == "{") - i32::from(*word == "}");
        depth == 0 && *word == ","
    });
    all.filter(|part| !part.is_empty()).collect()
}

/// Names, numbers and single other characters; no comments, texts, characters and lifetimes.
pub fn words(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = text_length(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let length = end.unwrap_or(rest.len());
            words.push(&rest[..length]);
            length
        } else {
            if !first.is_whitespace() {
                words.push(&rest[..first.len_utf8()]);
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    words
}

/// How long a text, a character or a lifetime is that begins here.
fn text_length(rest: &str) -> Option<usize> {
    if let Some(after) = rest.strip_prefix('\'') {
        let mut chars = after.char_indices();
        return Some(match chars.next()?.1 {
            '\\' => 2 + after[1..].char_indices().skip(1).find(|c| c.1 == '\'')?.0 + 1,
            _ => match chars.next() {
                Some((end, '\'')) => 1 + end + 1,
                _ => 1 + after.find(|c: char| !c.is_alphanumeric() && c != '_')?,
            },
        });
    }
    let raw = rest.trim_start_matches(['b', 'c']);
    if let Some(raw) = raw.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let text = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = text.find(&end).map_or(text.len(), |at| at + end.len());
        return Some(rest.len() - text.len() + length);
    }
    let text = raw.strip_prefix('"')?;
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    Some(rest.len() - text.len() + end.map_or(text.len(), |end| end + 1))
}
