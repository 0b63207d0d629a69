//! A web site from a description: which files there are, how large, and which refers to which. It
//! is a pure function of the description, so that client and server agree on it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rand::seq::index;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::causal::distribution::Distribution;
use crate::causal::page::Page;

const STANDARD: &str = include_str!("site.toml");
/// Bytes in an object, at most.
const LARGEST: f64 = 4e6;
/// Files of a site, at most.
const MOST_FILES: u32 = 100_000;

/// What a site is drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Of the sizes and references.
    pub seed: u64,
    /// The type of the objects that pages begin with.
    pub root: String,
    /// The types of objects, by name.
    pub types: BTreeMap<String, ObjectType>,
}

/// A type of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectType {
    /// The end of the files' names, which tells a server the content type.
    pub extension: String,
    /// How many there are.
    pub files: u32,
    /// Their sizes, bytes.
    pub size: Distribution,
    /// Whether the contents are text, which can be compressed.
    pub text: bool,
    /// How many objects of which type one refers to.
    #[serde(default)]
    pub children: BTreeMap<String, Distribution>,
}

/// A file of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Without the leading slash.
    pub path: String,
    pub size: u64,
    pub text: bool,
}

/// A site: its files and its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub(crate) objects: Vec<Object>,
    pub(crate) pages: Vec<Page>,
}

impl Description {
    /// Reads one from a file; the one that comes with batchwise if there is no file.
    pub fn read(file: Option<&Path>) -> Result<Self> {
        let text = file.map_or(Ok(STANDARD.to_owned()), |path| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        });
        toml::from_str(&text?).context("the description of the site")
    }

    fn check(&self) -> Result<()> {
        let root = &self.root;
        ensure!(
            self.types.contains_key(root),
            "the site: there is no type `{root}` for the root"
        );
        let files: u64 = self.types.values().map(|kind| u64::from(kind.files)).sum();
        ensure!(
            files <= u64::from(MOST_FILES),
            "the site: at most {MOST_FILES} files are possible"
        );
        for (name, kind) in &self.types {
            let plain = |text: &str| {
                let mut letters = text.bytes();
                !text.is_empty() && letters.all(|b| b.is_ascii_alphanumeric() || b == b'-')
            };
            ensure!(
                plain(name) && plain(&kind.extension),
                "the site: `{name}` and its extension must be letters and digits"
            );
            ensure!(kind.files > 0, "the site: `{name}` has no files");
            if let Some(child) = kind.children.keys().find(|c| !self.types.contains_key(*c)) {
                bail!("the site: `{name}` refers to `{child}`, which is not described");
            }
        }
        Ok(())
    }
}

impl Site {
    /// Draws the site of a description.
    pub fn build(description: &Description) -> Result<Self> {
        description.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(description.seed);
        let mut objects = Vec::new();
        let mut first_of = BTreeMap::new();
        for (name, kind) in &description.types {
            first_of.insert(name, objects.len());
            for number in 0..kind.files {
                let (extension, size) = (&kind.extension, kind.size.sample(&mut rng));
                objects.push(Object {
                    path: format!("{name}/{number:04}.{extension}"),
                    size: size.clamp(1.0, LARGEST) as u64,
                    text: kind.text,
                });
            }
        }
        let mut children = Vec::with_capacity(objects.len());
        for kind in description.types.values() {
            for _ in 0..kind.files {
                let mut refers_to = Vec::new();
                for (child, count) in &kind.children {
                    let all = description.types[child].files as usize;
                    let count = count.sample_whole(&mut rng).min(all as u64) as usize;
                    let chosen = index::sample(&mut rng, all, count);
                    refers_to.extend(chosen.iter().map(|at| (first_of[child] + at) as u32));
                }
                children.push(refers_to);
            }
        }
        let root = first_of[&description.root] as u32;
        let roots = root..root + description.types[&description.root].files;
        let grow = |root| Page::grow(root, |object| children[object as usize].iter().copied());
        Ok(Self {
            objects,
            pages: roots.map(grow).collect(),
        })
    }

    /// Mean number of objects of a page.
    pub fn objects_per_page(&self) -> f64 {
        let objects: usize = self.pages.iter().map(Page::len).sum();
        objects as f64 / self.pages.len() as f64
    }

    /// A page, all equally likely.
    pub(crate) fn pick(&self, rng: &mut impl Rng) -> usize {
        rng.random_range(0..self.pages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Description {
        Description::read(None).unwrap()
    }

    #[test]
    fn the_standard_site_has_twenty_pages_of_tens_of_objects() {
        let site = Site::build(&standard()).unwrap();
        assert_eq!(site.pages.len(), 20);
        assert_eq!(site.objects.len(), 492);
        let per_page = site.objects_per_page();
        assert!((25.0..60.0).contains(&per_page), "{per_page}");
        assert!(site.objects.iter().all(|o| o.size > 0));
    }

    #[test]
    fn a_description_gives_the_same_site_each_time_and_another_seed_another_one() {
        let description = standard();
        let site = Site::build(&description).unwrap();
        assert_eq!(site, Site::build(&description).unwrap());
        let other = Description {
            seed: 2,
            ..description
        };
        assert_ne!(site, Site::build(&other).unwrap());
    }

    #[test]
    fn a_description_survives_being_written() {
        let description = standard();
        let text = toml::to_string(&description).unwrap();
        assert_eq!(toml::from_str::<Description>(&text).unwrap(), description);
    }

    #[test]
    fn descriptions_that_do_not_hang_together_are_refused() {
        let cases = [
            ("root = \"html\"", "root = \"page\"", "no type `page`"),
            ("files = 40", "files = 0", "has no files"),
            ("font = \"0..2\"", "sound = \"1\"", "`sound`, which is not"),
            ("\"jpg\"", "\"../jpg\"", "letters and digits"),
        ];
        for (text, changed, why) in cases {
            let broken = STANDARD.replacen(text, changed, 1);
            let refused = Site::build(&toml::from_str(&broken).unwrap()).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let unreadable = STANDARD.replacen("2..6", "6..2", 1);
        assert!(toml::from_str::<Description>(&unreadable).is_err());
    }
}
